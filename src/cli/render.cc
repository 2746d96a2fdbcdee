#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "cli/command.h"
#include "text/chat_template.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxMessagesBytes = 256 << 20;

struct Options {
  std::string model, file, tools, kwargs;
  bool no_generation_prompt = false, ids = false, json = false;
};

Result<std::string> read(const std::string& file) {
  if (file != "-") return read_text_file(file, kMaxMessagesBytes);
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) text.append(buffer, n);
  return text;
}

Outcome run(const Options& o) {
  LATHE_ASSIGN(const ChatTemplate chat, ChatTemplate::load(o.model));
  LATHE_ASSIGN(const std::string messages, read(o.file));
  LATHE_ASSIGN(ChatInput input, chat_input_from_json(messages, o.file == "-" ? "standard input" : o.file));
  if (!o.tools.empty()) {
    LATHE_ASSIGN(input.tools, read(o.tools));
  }
  if (!o.kwargs.empty()) input.variables = o.kwargs;
  if (o.no_generation_prompt) input.generation_prompt = false;
  LATHE_ASSIGN(const RenderedChat rendered, chat.render(input));
  if (!o.ids && !o.json) return fmt::print("{}\n", rendered.text()), Status::ok();
  LATHE_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(o.model));
  LATHE_ASSIGN(const std::vector<int32_t> ids, rendered.encode_trusting(tokenizer));
  if (!o.json) return fmt::print("{}\n", fmt::join(ids, " ")), Status::ok();
  LATHE_ASSIGN(const std::vector<int32_t> guarded, rendered.encode(tokenizer));
  const Json report = {{"text", rendered.text()}, {"ids", ids}, {"guarded_ids", guarded}};
  fmt::print("{}\n", report.dump(-1, ' ', false, Json::error_handler_t::replace));
  return Status::ok();
}

}  // namespace

void add_render(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("render", "A conversation to the prompt that a model reads, by its chat template");
  sub->group(kLookInside);
  sub->add_option("--model", o->model,
                  "Folder with chat_template.jinja (or the field in tokenizer_config.json) and tokenizer.json")
      ->required();
  sub->add_option("file", o->file,
                  "JSON: a list of messages, or {\"messages\", \"tools\", \"chat_template_kwargs\", "
                  "\"add_generation_prompt\"}; - is standard input")
      ->required();
  sub->add_option("--tools", o->tools, "JSON file with a list of tools");
  sub->add_option("--kwargs", o->kwargs, "Further variables of the template, as a JSON object");
  sub->add_flag("--no-generation-prompt", o->no_generation_prompt, "Don't open the assistant's turn at the end");
  sub->add_flag("--ids", o->ids, "Print ids instead of the prompt");
  add_json_option(*sub, o->json);
  sub->footer(
      "ids are those of the reference library, for which <|user|> in a message is a control token. guarded_ids (with "
      "--json) are\n"
      "what generate and chat feed: only the template's own words become control tokens.\n"
      "Examples:\n  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | lathe render --model models/demo -\n"
      "  lathe render --model models/demo chat.json --tools tools.json --kwargs '{\"reasoning_effort\": \"low\"}' "
      "--json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
