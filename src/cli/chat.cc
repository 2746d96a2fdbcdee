#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer_printer.h"
#include "cli/command.h"
#include "lathe/engine.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

struct Options {
  EngineOptions engine;
  SamplingOptions sampling;
  float temperature = 0;
  std::string system;
  RunOptions run;
};

Json answer_message(const ParsedOutput& out) {
  Json message = {{"role", "assistant"}, {"content", out.content}};
  if (!out.reasoning.empty()) message["reasoning_content"] = out.reasoning;
  for (const ParsedOutput::ToolCall& call : out.tool_calls)
    message["tool_calls"].push_back(
        {{"type", "function"},
         {"function", {{"name", call.name}, {"arguments", Json::parse(call.arguments, nullptr, false)}}}});
  return message;
}

Outcome run(const CLI::App& sub, const Options& o) {
  EngineOptions engine_options = o.engine;
  engine_options.device = o.run.device, engine_options.threads = o.run.threads,
  engine_options.variants = o.run.variants;
  SamplingOptions sampling = o.sampling;
  if (sub.count("--temperature")) sampling.temperature = o.temperature;
  LATHE_ASSIGN(const std::unique_ptr<Engine> engine, Engine::load(engine_options));
  Json messages = Json::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  const size_t fresh = messages.size();
  const bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (terminal) fmt::print("Ask something. /new starts over, /exit or Ctrl-D leaves.\n");
  for (std::string line;;) {
    if (terminal) fmt::print("\n> "), std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(fresh), messages.end());
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    LATHE_ASSIGN(const auto prompt, engine->chat_prompt(messages.dump(-1, ' ', false, Json::error_handler_t::replace)));
    Result<Generation> g = [&] {
      AnswerPrinter printer(isatty(STDOUT_FILENO), /*thinking=*/true);
      return engine->generate(*prompt, sampling, [&](std::string_view piece) { return printer.print(piece), true; });
    }();
    if (!g.is_ok()) return g.status();
    messages.push_back(answer_message(engine->parse(*g)));
  }
  return Status::ok();
}

}  // namespace

void add_chat(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("chat", "A conversation in the terminal");
  sub->group(kRunModels);
  sub->add_option("--model", o->engine.model, "Folder of a checkpoint, with tokenizer.json and chat_template.jinja")
      ->required();
  sub->add_option("--system", o->system, "System message");
  sub->add_option("--max-tokens", o->sampling.max_tokens, "Tokens of an answer at most")->capture_default_str();
  sub->add_option("--temperature", o->temperature, "0: always the likeliest token (default: generation_config.json)");
  add_seed_option(*sub, o->sampling.seed, "The same seed draws the same tokens");
  sub->add_option("--dtype", o->engine.dtype, "Activations and caches: f32 or bf16 (default: as config.json says)");
  add_run_options(*sub, o->run);
  sub->footer(
      "Examples:\n  lathe chat --model models/demo\n  echo 'What is Lathe?' | lathe chat --model models/demo "
      "--temperature 0");
  sub->callback([&chosen, sub, o] { chosen.body = [sub, o] { return run(*sub, *o); }; });
}

}  // namespace lathe
