#include "model/glm5_next/synth.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/whole_number.h"
#include "model/checkpoint.h"

namespace lathe {

namespace {

struct Options {
  std::string config, out;
  uint64_t seed = 0;
  uint64_t shard_bytes = uint64_t{5} << 30;
  int threads = 1;
  bool json = false;
};

Status run(const Options& o) {
  ThreadPool pool(o.threads);
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressLine line;
    glm5_next::SynthOptions options{.seed = o.seed, .shard_bytes = static_cast<int64_t>(o.shard_bytes), .progress = {}};
    options.progress = [&](int64_t done, int64_t all, const std::string& tensor) {
      line.show(static_cast<int>(done >> 20), static_cast<int>(all >> 20), "MiB " + tensor);
    };
    LATHE_RETURN_IF_ERROR(glm5_next::synthesise(o.config, o.out, options, pool));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LATHE_ASSIGN(const Checkpoint written, Checkpoint::open(o.out));
  if (o.json) {
    fmt::print("{}\n", nlohmann::json{{"out", o.out},
                                      {"seed", o.seed},
                                      {"tensors", written.tensors().size()},
                                      {"bytes", written.bytes()},
                                      {"seconds", seconds}}
                           .dump(2));
  } else {
    fmt::print("{}: {} random tensors, {:.3f} GB, seed {}, in {:.1f} s\n", o.out, written.tensors().size(),
               static_cast<double>(written.bytes()) / 1e9, o.seed, seconds);
    fmt::print(
        "No tokenizer: copy tokenizer.json and tokenizer_config.json there to use text; token ids work as it is.\n");
  }
  return Status::ok();
}

}  // namespace

void add_synth(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("synth", "A random checkpoint of any size from a config.json: same seed, same bytes");
  sub->group(kLookInside);
  sub->add_option("config", o->config,
                  "config.json of the model; its dtype and quantization_config say how tensors are stored")
      ->type_name("CONFIG.json")
      ->required();
  sub->add_option("out", o->out, "Folder to write: new, or empty")->type_name("OUT")->required();
  add_seed_option(*sub, o->seed, "What the values are drawn from");
  sub->add_option("--shard-bytes", o->shard_bytes,
                  "Largest data size of one file, such as 500MB or 5GiB (default: 5GiB)")
      ->transform(CLI::AsSizeValue(false))
      ->check(whole_number(1, INT64_MAX));
  add_threads_option(*sub, o->threads);
  add_json_option(*sub, o->json);
  sub->footer(
      "The model it makes computes what any model of this shape does, but it knows nothing; there is no tokenizer.\n"
      "Examples:\n"
      "  lathe synth bench/configs/1b.json /tmp/1b\n"
      "  lathe synth my-config.json out --seed 7 --shard-bytes 500MB --json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
