#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer_printer.h"
#include "cli/command.h"
#include "lathe/engine.h"
#include "lathe/trace.h"

namespace lathe {

namespace {

struct Options {
  EngineOptions engine;
  SamplingOptions sampling;
  float temperature = 0, top_p = 1;
  std::string prompt;
  std::vector<std::string> images;
  bool raw = false, json = false;
  RunOptions run;
  RecordingOptions recording;
};

// One user message; pictures stand before the text.
std::string message_of(const Options& o) {
  nlohmann::json content = o.prompt;
  if (!o.images.empty()) {
    content = nlohmann::json::array();
    for (size_t i = 0; i < o.images.size(); ++i) content.push_back({{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", o.prompt}});
  }
  return nlohmann::json::array({{{"role", "user"}, {"content", content}}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print_json(const Generation& g) {
  const char* finish[] = {"stop", "length", "cancelled"};
  const double per_second = g.decode_seconds > 0 ? static_cast<double>(g.tokens.size()) / g.decode_seconds : 0;
  fmt::print("{}\n", nlohmann::json{{"text", g.text},
                                    {"tokens", g.tokens},
                                    {"finish", finish[static_cast<int>(g.finish)]},
                                    {"prompt_tokens", g.prompt_tokens},
                                    {"prefill_seconds", g.prefill_seconds},
                                    {"decode_seconds", g.decode_seconds},
                                    {"tokens_per_s", per_second}}
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// What made this run what it is, for the trace.
std::vector<std::pair<std::string, std::string>> settings_of(const Options& o) {
  std::string variants;
  for (const std::string& v : o.run.variants) variants += (variants.empty() ? "" : " ") + v;
  return {{"command", "generate"},  {"model", o.engine.model}, {"threads", std::to_string(o.run.threads)},
          {"device", o.run.device}, {"variants", variants},    {"dtype", o.engine.dtype}};
}

Outcome run(const CLI::App& sub, const Options& o) {
  EngineOptions engine_options = o.engine;
  engine_options.device = o.run.device, engine_options.threads = o.run.threads,
  engine_options.variants = o.run.variants;
  SamplingOptions sampling = o.sampling;
  if (sub.count("--temperature")) sampling.temperature = o.temperature;
  if (sub.count("--top-p")) sampling.top_p = o.top_p;
  if (o.prompt.empty()) return invalid("--prompt is empty");
  LATHE_ASSIGN(engine_options.probes, begin_recording(o.recording));
  LATHE_ASSIGN(const std::unique_ptr<Engine> engine, Engine::load(engine_options));
  LATHE_ASSIGN(const auto prompt,
               o.raw ? engine->raw_prompt(o.prompt, o.images) : engine->chat_prompt(message_of(o), o.images));
  if (o.json) {
    LATHE_ASSIGN(const Generation g, engine->generate(*prompt, sampling));
    print_json(g);
    return write_recording(engine_options.probes.get(), o.recording, settings_of(o));
  }
  Result<Generation> result = [&] {
    AnswerPrinter printer(isatty(STDOUT_FILENO), /*thinking=*/!o.raw);
    return engine->generate(*prompt, sampling, [&](std::string_view piece) { return printer.print(piece), true; });
  }();
  LATHE_ASSIGN(const Generation g, std::move(result));
  if (isatty(STDERR_FILENO) && g.decode_seconds > 0)
    fmt::print(stderr, "[{} prompt tokens in {:.2f} s, {} generated, {:.1f} tokens/s]\n", g.prompt_tokens,
               g.prefill_seconds, g.tokens.size(), static_cast<double>(g.tokens.size()) / g.decode_seconds);
  return write_recording(engine_options.probes.get(), o.recording, settings_of(o));
}

}  // namespace

void add_generate(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("generate", "One answer to one prompt, streamed to the terminal");
  sub->group(kRunModels);
  sub->add_option("--model", o->engine.model, "Folder of a checkpoint, with tokenizer.json")->required();
  sub->add_option("--prompt", o->prompt, "What the user says; with --raw, the text to continue")->required();
  sub->add_option("--image", o->images, "Picture file; repeat for several")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_option("--max-tokens", o->sampling.max_tokens, "Tokens to generate at most")->capture_default_str();
  sub->add_option("--temperature", o->temperature, "0: always the likeliest token (default: generation_config.json)");
  sub->add_option("--top-p", o->top_p,
                  "Smallest set of likeliest tokens with that probability (default: generation_config.json)");
  sub->add_option("--top-k", o->sampling.top_k, "Likeliest tokens to draw from; 0: all")->capture_default_str();
  sub->add_option("--min-p", o->sampling.min_p, "Tokens at least that likely, relative to the likeliest")
      ->capture_default_str();
  add_seed_option(*sub, o->sampling.seed, "The same seed draws the same tokens");
  sub->add_flag("--raw", o->raw, "No chat template: continue the prompt as it is");
  sub->add_option("--dtype", o->engine.dtype, "Activations and caches: f32 or bf16 (default: as config.json says)");
  add_run_options(*sub, o->run);
  add_recording_options(*sub, o->recording);
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n  lathe generate --model models/demo --prompt 'What is 12 + 30?'\n"
      "  lathe generate --model models/demo --prompt 'What is in the picture?' --image picture.png --temperature 0");
  sub->callback([&chosen, sub, o] { chosen.body = [sub, o] { return run(*sub, *o); }; });
}

}  // namespace lathe
