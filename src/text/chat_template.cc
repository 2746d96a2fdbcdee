#include "text/chat_template.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "text/jinja/json_value.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTemplateBytes = 4 << 20;

std::string template_path(const std::string& dir) { return dir + "/chat_template.jinja"; }
std::string config_path(const std::string& dir) { return dir + "/tokenizer_config.json"; }

// "<|x|>", or {"content": "<|x|>"}.
std::string token_text(const nlohmann::json& config, const char* field) {
  if (!config.contains(field)) return "";
  const nlohmann::json& token = config[field];
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() && token.contains("content") && token["content"].is_string() ? token["content"].get<std::string>() : "";
}

// The template among a list of named ones, or the only one.
std::string template_field(const nlohmann::json& config) {
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const nlohmann::json& field = config["chat_template"];
  if (field.is_string()) return field.get<std::string>();
  if (!field.is_array()) return "";
  for (const nlohmann::json& named : field)
    if (named.is_object() && named.value("name", "") == "default" && named.contains("template") && named["template"].is_string()) return named["template"].get<std::string>();
  return "";
}

}  // namespace

Result<std::vector<int32_t>> RenderedChat::encode(const Tokenizer& tokenizer) const { return tokenizer.encode(text_.view(), {.literal = text_.data()}); }

bool ChatTemplate::exists(const std::string& dir) {
  if (std::filesystem::exists(template_path(dir))) return true;
  if (!std::filesystem::exists(config_path(dir))) return false;
  const Result<nlohmann::json> config = read_json_file(config_path(dir), kMaxTemplateBytes);
  return config.is_ok() && !template_field(*config).empty();
}

Result<ChatTemplate> ChatTemplate::load(const std::string& dir) {
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::exists(config_path(dir))) {
    LATHE_ASSIGN(config, read_json_file(config_path(dir), kMaxTemplateBytes));
    if (!config.is_object()) return corrupt("{}: must be an object", config_path(dir));
  }
  const std::string bos = token_text(config, "bos_token"), eos = token_text(config, "eos_token");
  if (std::filesystem::exists(template_path(dir))) {
    LATHE_ASSIGN(const std::string source, read_text_file(template_path(dir), kMaxTemplateBytes));
    return parse(source, template_path(dir), bos, eos);
  }
  const std::string source = template_field(config);
  if (source.empty()) return not_found("{}: has neither chat_template.jinja nor a chat_template in tokenizer_config.json", dir);
  return parse(source, config_path(dir) + ": chat_template", bos, eos);
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& name, std::string bos, std::string eos) {
  LATHE_ASSIGN(jinja::Template body, jinja::Template::parse(source, name));
  return ChatTemplate(std::move(body), std::move(bos), std::move(eos));
}

Result<RenderedChat> ChatTemplate::render(const ChatInput& input) const {
  std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"bos_token", jinja::Value(bos_, jinja::Origin::kTemplate)},
      {"eos_token", jinja::Value(eos_, jinja::Origin::kTemplate)},
      {"add_generation_prompt", jinja::Value(input.generation_prompt)},
  };
  LATHE_ASSIGN(jinja::Value messages, jinja::value_from_json(input.messages, "messages"));
  if (!messages.list()) return invalid("messages: must be a list");
  for (const jinja::Value& m : messages.list()->items)
    if (const jinja::Value* role = m.dict() ? m.dict()->find(std::string_view("role")) : nullptr; !role || !role->text())
      return invalid("messages: each must be an object with a role");
  variables.emplace_back("messages", std::move(messages));
  jinja::Value tools{jinja::None{}};
  if (!input.tools.empty()) {
    LATHE_ASSIGN(tools, jinja::value_from_json(input.tools, "tools"));
    if (!tools.list() && !tools.is_none()) return invalid("tools: must be a list");
  }
  variables.emplace_back("tools", std::move(tools));
  if (!input.variables.empty()) {
    LATHE_ASSIGN(const jinja::Value more, jinja::value_from_json(input.variables, "chat_template_kwargs"));
    if (!more.dict()) return invalid("chat_template_kwargs: must be an object");
    for (const auto& [key, value] : more.dict()->entries) variables.emplace_back(std::string(key.text()->view()), value);
  }
  LATHE_ASSIGN(jinja::Text text, body_.render(variables, std::time(nullptr)));
  return RenderedChat(std::move(text));
}

Result<ChatInput> chat_input_from_json(std::string_view json, const std::string& name) {
  LATHE_RETURN_IF_ERROR(parse_json(json, name).status());  // bounds depth, and says line and column
  const Json j = Json::parse(json);
  auto text = [](const Json& part) { return part.dump(-1, ' ', false, Json::error_handler_t::replace); };
  ChatInput input;
  if (j.is_array()) {
    input.messages = text(j);
    return input;
  }
  if (!j.is_object() || !j.contains("messages")) return corrupt("{}: must be a list of messages, or an object with messages", name);
  input.messages = text(j["messages"]);
  if (j.contains("tools") && !j["tools"].is_null()) input.tools = text(j["tools"]);
  if (j.contains("chat_template_kwargs") && !j["chat_template_kwargs"].is_null()) input.variables = text(j["chat_template_kwargs"]);
  if (j.contains("add_generation_prompt") && j["add_generation_prompt"].is_boolean()) input.generation_prompt = j["add_generation_prompt"];
  return input;
}

}  // namespace lathe
