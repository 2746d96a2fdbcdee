#include "text/chat_template.h"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "text/chat_messages.h"
#include "text/jinja/json_value.h"

namespace lathe {

namespace {

constexpr int64_t kMaxTemplateBytes = 4 << 20;
constexpr int64_t kMaxConfigBytes = 16 << 20;  // Gemma's lists thousands of tokens

std::string template_path(const std::string& dir) { return dir + "/chat_template.jinja"; }
std::string config_path(const std::string& dir) { return dir + "/tokenizer_config.json"; }

// "<|x|>", or {"content": "<|x|>"}.
std::string token_text(const nlohmann::json& token) {
  if (token.is_string()) return token.get<std::string>();
  const auto content = token.is_object() ? token.find("content") : token.end();
  return token.is_object() && content != token.end() && content->is_string() ? content->get<std::string>() : "";
}

SpecialTokens special_tokens(const nlohmann::json& config) {
  SpecialTokens tokens;
  for (const char* field : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (std::string text = config.contains(field) ? token_text(config[field]) : ""; !text.empty())
      tokens.emplace_back(field, std::move(text));
  return tokens;
}

// The template of this name among a list of named ones; the only one goes by "default".
std::string template_field(const nlohmann::json& config, std::string_view wanted) {
  const auto field = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || field == config.end()) return "";
  if (field->is_string() && wanted == "default") return field->get<std::string>();
  if (!field->is_array()) return "";
  for (const nlohmann::json& named : *field) {
    const bool whole =
        named.is_object() && named.contains("name") && named.contains("template") && named["template"].is_string();
    if (whole && named["name"] == wanted) return named["template"].get<std::string>();
  }
  return "";
}

}  // namespace

Result<std::vector<int32_t>> RenderedChat::encode(const Tokenizer& tokenizer) const {
  return tokenizer.encode(text_.view(), {.literal = text_.data()});
}

bool ChatTemplate::exists(const std::string& dir) {
  if (std::filesystem::exists(template_path(dir))) return true;
  if (!std::filesystem::exists(config_path(dir))) return false;
  const Result<nlohmann::json> config = read_json_file(config_path(dir), kMaxConfigBytes);
  return config.is_ok() && !template_field(*config, "default").empty();
}

Result<ChatTemplate> ChatTemplate::load(const std::string& dir) {
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::exists(config_path(dir))) {
    LATHE_ASSIGN(config, read_json_file(config_path(dir), kMaxConfigBytes));
    if (!config.is_object()) return corrupt("{}: must be an object", config_path(dir));
  }
  SpecialTokens tokens = special_tokens(config);
  if (std::filesystem::exists(template_path(dir))) {
    LATHE_ASSIGN(const std::string source, read_text_file(template_path(dir), kMaxTemplateBytes));
    return parse(source, template_path(dir), std::move(tokens));
  }
  const std::string source = template_field(config, "default"), tool_use = template_field(config, "tool_use");
  if (source.empty())
    return not_found("{}: has neither chat_template.jinja nor a chat_template in tokenizer_config.json", dir);
  LATHE_ASSIGN(ChatTemplate chat, parse(source, config_path(dir) + ": chat_template", std::move(tokens)));
  if (tool_use.empty()) return chat;
  LATHE_ASSIGN(chat.with_tools_, jinja::Template::parse(tool_use, config_path(dir) + ": chat_template 'tool_use'"));
  chat.arguments_ = chat.try_arguments();
  return chat;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& name, SpecialTokens tokens) {
  LATHE_ASSIGN(jinja::Template body, jinja::Template::parse(source, name));
  ChatTemplate chat(std::move(body), std::move(tokens));
  chat.arguments_ = chat.try_arguments();
  return chat;
}

// Some templates print arguments only as an object (GLM), some only as text (DeepSeek), most either way; some look at
// them only where the content is null. The first form that gets through and shows up is theirs.
ChatTemplate::Arguments ChatTemplate::try_arguments() const {
  constexpr std::string_view kMark = "lathe_trial";
  jinja::Value tools{jinja::None{}};
  if (with_tools_)
    tools = *jinja::value_from_json(
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}])",
        "trial");
  for (const Arguments form : {Arguments::kObject, Arguments::kText})
    for (const char* content : {"\"\"", "null"}) {
      const std::string arguments = form == Arguments::kObject ? R"({"lathe_trial": 1})" : R"("{\"lathe_trial\": 1}")";
      const std::string messages = fmt::format(
          R"([{{"role": "user", "content": "x"}}, {{"role": "assistant", "content": {}, "tool_calls": [{{"id": "call12345", "type": "function", "function": {{"name": "f", "arguments": {}}}}}]}}])",
          content, arguments);
      const Result<jinja::Text> text = run(*jinja::value_from_json(messages, "trial"), tools, false, {});
      if (text.is_ok() && text->view().find(kMark) != std::string_view::npos) return form;
    }
  return Arguments::kObject;
}

Result<jinja::Text> ChatTemplate::run(jinja::Value messages, jinja::Value tools, bool generation_prompt,
                                      std::vector<std::pair<std::string, jinja::Value>> more) const {
  const jinja::Template& body = with_tools_ && tools.truthy() ? *with_tools_ : body_;
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [field, text] : tokens_) variables.emplace_back(field, jinja::Value(text, jinja::Origin::kTemplate));
  for (auto& variable : more) variables.push_back(std::move(variable));
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("tools", std::move(tools));
  variables.emplace_back("documents", jinja::None{});
  variables.emplace_back("add_generation_prompt", generation_prompt);
  return body.render(variables, std::time(nullptr));
}

Result<RenderedChat> ChatTemplate::render(const ChatInput& input) const {
  LATHE_ASSIGN(jinja::Value messages, jinja::value_from_json(input.messages, "messages"));
  LATHE_ASSIGN(messages,
               arguments_ == Arguments::kObject ? with_object_arguments(messages) : with_text_arguments(messages));
  jinja::Value tools{jinja::None{}};
  if (!input.tools.empty()) {
    LATHE_ASSIGN(tools, jinja::value_from_json(input.tools, "tools"));
    if (!tools.list() && !tools.is_none()) return invalid("tools: must be a list");
  }
  std::vector<std::pair<std::string, jinja::Value>> more;
  if (!input.variables.empty()) {
    LATHE_ASSIGN(const jinja::Value given, jinja::value_from_json(input.variables, "chat_template_kwargs"));
    if (!given.dict()) return invalid("chat_template_kwargs: must be an object");
    for (const auto& [key, value] : given.dict()->entries) {
      const std::string_view name = key.text()->view();
      if (name == "messages" || name == "tools" || name == "add_generation_prompt")
        return invalid("chat_template_kwargs: can't hold '{}'", name);
      more.emplace_back(name, value);
    }
  }
  LATHE_ASSIGN(jinja::Text text, run(std::move(messages), std::move(tools), input.generation_prompt, std::move(more)));
  return RenderedChat(std::move(text));
}

Result<ChatInput> chat_input_from_json(std::string_view json, const std::string& name) {
  LATHE_ASSIGN(const jinja::Value root, jinja::value_from_json(json, name));
  const auto member = [&](std::string_view key) { return root.dict() ? root.dict()->find(key) : nullptr; };
  const jinja::Value* messages = root.list() ? &root : member("messages");
  if (!messages) return corrupt("{}: must be a list of messages, or an object with messages", name);
  ChatInput input;
  LATHE_ASSIGN(input.messages, jinja::json_from_value(*messages));
  if (const jinja::Value* tools = member("tools"); tools && !tools->is_none()) {
    LATHE_ASSIGN(input.tools, jinja::json_from_value(*tools));
  }
  for (const char* field : {"chat_template_kwargs", "kwargs"}) {
    const jinja::Value* variables = member(field);
    if (!variables || variables->is_none()) continue;
    LATHE_ASSIGN(input.variables, jinja::json_from_value(*variables));
  }
  if (const jinja::Value* prompt = member("add_generation_prompt"); prompt && !prompt->is_none()) {
    if (!prompt->is<bool>()) return corrupt("{}: add_generation_prompt: must be true or false", name);
    input.generation_prompt = prompt->truthy();
  }
  return input;
}

}  // namespace lathe
