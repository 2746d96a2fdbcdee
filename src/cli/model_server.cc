#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "lathe/engine.h"

namespace lathe {

namespace {

struct Options {
  EngineOptions engine;
  RunOptions run;
};

void say(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

Outcome run(const Options& o) {
  EngineOptions options = o.engine;
  options.threads = o.run.threads, options.variants = o.run.variants, options.device = o.run.device;
  LATHE_ASSIGN(const std::unique_ptr<Engine> engine, Engine::load(options));
  say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("prompt") || !j["prompt"].is_string())
      return invalid("model-server: not a request: {}", line);
    LATHE_ASSIGN(const auto prompt, engine->raw_prompt(j["prompt"].get<std::string>()));
    SamplingOptions sampling;
    sampling.temperature = 0;
    sampling.max_tokens = j.value("max_tokens", 16);
    LATHE_ASSIGN(const Generation g,
                 engine->generate(*prompt, sampling, [&](std::string_view) { return say("token"), true; }));
    say(fmt::format("done {}", g.tokens.size()));
  }
  return Status::ok();
}

}  // namespace

// Hidden: started by compare --model. One request a line in, one line a piece of text out; it holds no clock.
void add_model_server(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("model-server", "Answer prompts for a supervisor that holds the clock");
  sub->group("");
  sub->add_option("--model", o->engine.model, "Folder of a checkpoint")->required();
  sub->add_option("--dtype", o->engine.dtype, "f32 or bf16");
  add_run_options(*sub, o->run);
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
