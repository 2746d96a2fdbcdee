#include "lathe/logits.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/whole_number.h"

namespace lathe {

namespace {

struct Options {
  LogitsOptions logits;
  std::string tokens, out;
  RunOptions run;
};

Outcome run(const Options& o) {
  LogitsOptions options = o.logits;
  options.device = o.run.device;
  options.threads = o.run.threads;
  options.variants = o.run.variants;
  LATHE_ASSIGN(const auto tokens, read_token_lists(o.tokens));
  return write_logits(options, tokens, o.out);
}

}  // namespace

void add_logits(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("logits", "Teacher-forced logits of token lists, by any path through the engine");
  sub->group(kRunModels);
  sub->add_option("--model", o->logits.model, "Folder of a checkpoint")->required();
  sub->add_option("--tokens", o->tokens, "JSON file: a list of token-id lists, placeholders already expanded")
      ->required();
  sub->add_option("--out", o->out, "safetensors file to write: logits.<i> [T, vocab] f32")->required();
  sub->add_option("--dtype", o->logits.dtype, "Activations and caches: f32 or bf16 (default: as config.json says)");
  sub->add_option("--chunk", o->logits.chunk,
                  "Prefill in pieces of N tokens (default: as many as a tenth of the weights' bytes has room for)")
      ->check(whole_number(1));
  sub->add_option("--decode-from", o->logits.decode_from,
                  "Feed tokens from position K on one by one through the caches")
      ->check(whole_number(0));
  sub->add_flag("--replay", o->logits.replay, "Decode by replay ring");
  sub->add_option("--cut", o->logits.cut, "Run on in-process ranks: tp=N, ep=N or cp=N");
  sub->add_flag("--hidden", o->logits.hidden, "Also write hidden.<i>.<layer> [T, hc_mult, hidden]");
  sub->add_option("--image", o->logits.images, "Picture file; repeat, in order of the placeholders")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_option("--video", o->logits.videos, "Folder of frames; repeat, in order")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_run_options(*sub, o->run);
  sub->footer(
      "Examples:\n  lathe logits --model models/demo --tokens ids.json --out logits.safetensors --chunk 64\n"
      "  lathe logits --model models/demo --tokens ids.json --out logits.safetensors --dtype f32 --decode-from 100 "
      "--replay");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
