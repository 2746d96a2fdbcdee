#include "serve/conversation.h"

// The conversation of /v1/chat/completions.
namespace lathe::serve {

namespace {

Json chat_content(Conversation& c, const Json& content, const std::string& role, const std::string& param,
                  Errors& errors) {
  if (content.is_string()) return content;
  if (content.is_null()) {
    if (role != "assistant") errors.bad(param, param + " must be a string or a list of parts");
    return "";
  }
  if (!content.is_array()) {
    errors.bad(param, param + " must be a string or a list of parts", "invalid_type");
    return "";
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& type = member(part, "type");
    if (type == "text") {
      parts.push_back(text_part(member(part, "text"), at, errors));
    } else if (type == "refusal" && role == "assistant") {
      parts.push_back(text_part(member(part, "refusal"), at, errors));
    } else if (type == "image_url" && (role == "user" || role == "tool")) {
      const Json& image = member(part, "image_url");
      add_image_part(c, parts, image.is_object() ? member(image, "url") : image, at + ".image_url.url", errors);
    } else {
      errors.bad(at + ".type",
                 fmt::format("{}.type must be text{}", at, role == "user" || role == "tool" ? " or image_url" : ""));
    }
  }
  return joined_parts(std::move(parts));
}

Json chat_calls(const Json& calls, const std::string& param, Errors& errors) {
  Json out = Json::array();
  if (!calls.is_array()) {
    errors.bad(param, param + " must be a list", "invalid_type");
    return out;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& function = member(calls[i], "function");
    const Json& name = member(function, "name");
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      errors.bad(at + ".function.name", at + ".function.name must be a string", "invalid_type");
    const Json& id = member(calls[i], "id");
    out.push_back(
        {{"id", id.is_string() ? id : Json("")},
         {"type", "function"},
         {"function",
          {{"name", name.is_string() ? name : Json("")},
           {"arguments", arguments_object(member(function, "arguments"), at + ".function.arguments", errors)}}}});
  }
  return out;
}

void chat_message(Conversation& c, const Json& m, const std::string& param, Errors& errors) {
  if (!m.is_object()) return errors.bad(param, param + " must be an object", "invalid_type");
  const Json& role_of = member(m, "role");
  std::string role = role_of.is_string() ? role_of.get<std::string>() : "";
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return errors.bad(param + ".role", param + ".role must be one of system, developer, user, assistant, tool");
  Json out = {{"role", role}, {"content", chat_content(c, member(m, "content"), role, param + ".content", errors)}};
  if (role == "assistant") {
    for (const char* name : {"reasoning_content", "reasoning"})
      if (member(m, name).is_string()) {
        out["reasoning_content"] = m[name];
        break;
      }
    const Json& calls = member(m, "tool_calls");
    if (!calls.is_null()) {
      Json read = chat_calls(calls, param + ".tool_calls", errors);
      if (!read.empty()) out["tool_calls"] = std::move(read);
    } else if (member(m, "content").is_null() && !out.contains("reasoning_content")) {
      errors.bad(param + ".content", param + ".content may be null only beside tool_calls");
    }
  }
  if (role == "tool" && member(m, "tool_call_id").is_string()) out["tool_call_id"] = m["tool_call_id"];
  c.messages.push_back(std::move(out));
}

void chat_choice(Conversation& c, const Json& choice, Errors& errors) {
  using Kind = ToolChoice::Kind;
  if (choice.is_null() || choice == "auto") return;
  if (choice == "none")
    c.choice.kind = Kind::kNone;
  else if (choice == "required")
    c.choice.kind = Kind::kRequired;
  else if (member(choice, "type") == "function" && member(member(choice, "function"), "name").is_string())
    c.choice = {Kind::kNamed, choice["function"]["name"].get<std::string>()};
  else
    errors.bad("tool_choice",
               "tool_choice must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\"}}");
}

}  // namespace

Conversation read_chat(Fields& f, const ConversationRules& rules, Errors& errors) {
  Conversation c;
  c.parallel_calls = f.parallel_tool_calls.value_or(true);
  c.generation_prompt = f.add_generation_prompt.value_or(true);
  if (f.messages.is_null()) errors.bad("messages", "messages is missing", "missing");
  for (size_t i = 0; i < f.messages.size() && !errors.any(); ++i)
    chat_message(c, f.messages[i], fmt::format("messages[{}]", i), errors);
  for (size_t i = 0; i < f.tools.size() && !errors.any(); ++i) {
    const std::string param = fmt::format("tools[{}]", i);
    const Json& function = member(f.tools[i], "function");
    if (member(f.tools[i], "type") != "function" || !function.is_object())
      errors.bad(param, param + " must be {\"type\": \"function\", \"function\": {...}}");
    else
      add_tool(c, member(function, "name"), member(function, "description"), member(function, "parameters"),
               member(function, "strict"), param + ".function", errors);
  }
  chat_choice(c, f.tool_choice, errors);
  if (f.reasoning_effort) {
    check_effort(*f.reasoning_effort, "reasoning_effort", errors);
    c.variables["reasoning_effort"] = *f.reasoning_effort;
  }
  if (f.chat_template_kwargs.is_object()) read_template_keys(c, f.chat_template_kwargs, rules, errors);
  if (!errors.any()) check_conversation(c, rules, errors);
  return c;
}

}  // namespace lathe::serve
