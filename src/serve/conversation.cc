#include "serve/conversation.h"

#include <algorithm>

namespace lathe::serve {

namespace {

constexpr size_t kMessages_ = 4096, kTools = 512, kSchemaBytes = 256 << 10, kSchemaNodes = 4096, kEnumValues = 10'000;

size_t count_nodes(const Json& v) {
  size_t n = 1;
  if (v.is_structured())
    for (const Json& child : v) n += count_nodes(child);
  return n;
}

bool is_name(const std::string& s) {
  return !s.empty() && s.size() <= 64 && std::all_of(s.begin(), s.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

void add_tool(Conversation& c, const Json& name, const Json& description, const Json& parameters, const Json& strict,
              const std::string& param, Errors& errors) {
  if (c.tools.size() >= kTools) return errors.bad("tools", "tools has more than 512 entries", "out_of_range");
  if (!name.is_string() || !is_name(name.get<std::string>()))
    return errors.bad(param + ".name", param + ".name must have 1 to 64 of letters, digits, '_', '-' and '.'");
  for (const Json& other : c.tools)
    if (other["function"]["name"] == name)
      return errors.bad(param + ".name", fmt::format("{}.name '{}' is declared twice", param, name.get<std::string>()));
  Json function = {{"name", name}};
  if (description.is_string())
    function["description"] = description;
  else if (!description.is_null())
    return errors.bad(param + ".description", param + ".description must be a string", "invalid_type");
  if (!parameters.is_null()) {
    if (!parameters.is_object())
      return errors.bad(param + ".parameters", param + ".parameters must be an object", "invalid_type");
    if (dump(parameters).size() > kSchemaBytes)
      return errors.bad(param + ".parameters", param + ".parameters is larger than 256 KiB", "out_of_range");
    if (count_nodes(parameters) > kSchemaNodes + kEnumValues)
      return errors.bad(param + ".parameters", param + ".parameters has too many nodes", "out_of_range");
    function["parameters"] = parameters;
  }
  if (strict.is_boolean()) function["strict"] = strict;
  c.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

Json arguments_object(const Json& arguments, const std::string& param, Errors& errors) {
  if (arguments.is_object()) return arguments;
  if (arguments.is_null() || arguments == "") return Json::object();
  if (arguments.is_string()) {
    Json parsed = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
    if (parsed.is_object()) return parsed;
  }
  errors.bad(param, param + " must be an object, or one as JSON text");
  return Json::object();
}

void read_template_keys(Conversation& c, const Json& kwargs, const ConversationRules& rules, Errors& errors) {
  for (const auto& [key, value] : kwargs.items()) {
    const std::string param = "chat_template_kwargs." + key;
    if (std::find(rules.template_keys.begin(), rules.template_keys.end(), key) == rules.template_keys.end())
      errors.bad(param, fmt::format("{} is not a variable that this server passes on; allowed: {}", param,
                                    fmt::join(rules.template_keys, ", ")));
    else if (value.is_structured())
      errors.bad(param, param + " must be a string, a number or a boolean", "invalid_type");
    else
      c.variables[key] = value;
  }
}

void check_effort(const std::string& effort, const std::string& param, Errors& errors) {
  for (const char* known : {"none", "minimal", "low", "medium", "high", "xhigh", "max"})
    if (effort == known) return;
  errors.bad(param, param + " must be one of none, minimal, low, medium, high, xhigh, max");
}

void check_conversation(Conversation& c, const ConversationRules& rules, Errors& errors) {
  if (c.messages.empty()) errors.bad("messages", "messages is empty", "out_of_range");
  if (c.messages.size() > kMessages_) errors.bad("messages", "messages has more than 4096 entries", "out_of_range");
  if (c.choice.kind == ToolChoice::Kind::kRequired && c.tools.empty())
    errors.bad("tool_choice", "tool_choice asks for a call, but there are no tools");
  if (c.choice.kind == ToolChoice::Kind::kNamed && std::none_of(c.tools.begin(), c.tools.end(), [&](const Json& t) {
        return t["function"]["name"] == c.choice.name;
      }))
    errors.bad("tool_choice", fmt::format("tool_choice names '{}', which is not among the tools", c.choice.name));
  if (!rules.strict) return;
  std::vector<std::string> asked;
  for (size_t i = 0; i < c.messages.size(); ++i) {
    const Json& m = c.messages[i];
    if (m.contains("tool_calls"))
      for (const Json& call : m["tool_calls"]) asked.push_back(call.value("id", ""));
    if (m["role"] == "tool" && std::find(asked.begin(), asked.end(), m.value("tool_call_id", "")) == asked.end())
      errors.bad(fmt::format("messages[{}].tool_call_id", i),
                 fmt::format("messages[{}].tool_call_id answers no call of an earlier message", i));
  }
}

Json text_part(const Json& text, const std::string& param, Errors& errors) {
  if (!text.is_string()) {
    errors.bad(param + ".text", param + ".text must be a string", "invalid_type");
    return {{"type", "text"}, {"text", ""}};
  }
  return {{"type", "text"}, {"text", text}};
}

void add_image_part(Conversation& c, Json& parts, const Json& url, const std::string& param, Errors& errors) {
  if (!url.is_string() || url.get_ref<const std::string&>().empty())
    return errors.bad(param, param + " must be a URL as a string", "invalid_type");
  c.images.push_back({url.get<std::string>(), param});
  parts.push_back({{"type", "image"}});
}

Json joined_parts(Json parts) {
  std::string all;
  for (const Json& part : parts) {
    if (part["type"] != "text") return parts;
    all += part["text"].get_ref<const std::string&>();
  }
  return all;
}

}  // namespace lathe::serve
