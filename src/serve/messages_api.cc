#include "serve/conversation.h"

// The conversation of /v1/messages: blocks become messages in the form of templates. Tool results stand in user
// messages there and become messages of their own here, before the user's text as in the source.
namespace lathe::serve {

namespace {

std::string source_url(const Json& source, const std::string& param, Errors& errors) {
  const Json &type = member(source, "type"), &data = member(source, "data"), &media = member(source, "media_type");
  if (type == "url" && member(source, "url").is_string()) return source["url"].get<std::string>();
  if (type == "base64" && data.is_string() && media.is_string())
    return fmt::format("data:{};base64,{}", media.get_ref<const std::string&>(), data.get_ref<const std::string&>());
  errors.bad(param, param + " must be {\"type\": \"base64\", \"media_type\", \"data\"}");
  return "-";
}

// Text and pictures of a user's message or a tool's result.
Json read_parts(Conversation& c, const Json& content, const std::string& param, Errors& errors) {
  if (content.is_string()) return content;
  if (content.is_null()) return "";
  if (!content.is_array()) {
    errors.bad(param, param + " must be a string or a list of blocks", "invalid_type");
    return "";
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& type = member(content[i], "type");
    if (type == "text")
      parts.push_back(text_part(member(content[i], "text"), at, errors));
    else if (type == "image")
      add_image_part(c, parts, source_url(member(content[i], "source"), at + ".source", errors), at + ".source",
                     errors);
    else
      errors.bad(at + ".type", at + ".type must be text or image here");
  }
  return joined_parts(std::move(parts));
}

void read_user(Conversation& c, const Json& content, const std::string& param, Errors& errors) {
  if (!content.is_array())
    return c.messages.push_back({{"role", "user"}, {"content", read_parts(c, content, param, errors)}});
  Json rest = Json::array();
  auto flush = [&] {
    if (!rest.empty()) c.messages.push_back({{"role", "user"}, {"content", read_parts(c, rest, param, errors)}});
    rest = Json::array();
  };
  for (size_t i = 0; i < content.size(); ++i) {
    if (member(content[i], "type") != "tool_result") {
      rest.push_back(content[i]);
      continue;
    }
    flush();
    const std::string at = fmt::format("{}[{}]", param, i);
    if (!member(content[i], "tool_use_id").is_string())
      errors.bad(at + ".tool_use_id", at + ".tool_use_id must be a string", "invalid_type");
    c.messages.push_back({{"role", "tool"},
                          {"tool_call_id", member(content[i], "tool_use_id")},
                          {"content", read_parts(c, member(content[i], "content"), at + ".content", errors)}});
  }
  flush();
}

void read_assistant(Conversation& c, const Json& content, const std::string& param, Errors& errors) {
  Json m = {{"role", "assistant"}, {"content", ""}};
  std::string text, thought;
  Json calls = Json::array();
  if (content.is_string())
    text = content.get<std::string>();
  else if (!content.is_array())
    errors.bad(param, param + " must be a string or a list of blocks", "invalid_type");
  for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
    const Json& block = content[i];
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& type = member(block, "type");
    if (type == "text") {
      text += text_part(member(block, "text"), at, errors)["text"].get_ref<const std::string&>();
    } else if (type == "thinking") {
      if (member(block, "thinking").is_string()) thought += block["thinking"].get_ref<const std::string&>();
    } else if (type == "tool_use") {
      if (!member(block, "name").is_string() || !member(block, "id").is_string())
        return errors.bad(at, at + " needs a name and an id");
      calls.push_back({{"id", block["id"]},
                       {"type", "function"},
                       {"function",
                        {{"name", block["name"]},
                         {"arguments", arguments_object(member(block, "input"), at + ".input", errors)}}}});
    } else if (type != "redacted_thinking") {
      errors.bad(at + ".type", at + ".type must be text, thinking or tool_use here");
    }
  }
  m["content"] = text;
  if (!thought.empty()) m["reasoning_content"] = thought;
  if (!calls.empty()) m["tool_calls"] = std::move(calls);
  c.messages.push_back(std::move(m));
}

void read_system(Conversation& c, const Json& system, Errors& errors) {
  if (system.is_null()) return;
  Json content = read_parts(c, system, "system", errors);
  if (!content.is_string()) return errors.bad("system", "system takes text only");
  if (content != "") c.messages.push_back({{"role", "system"}, {"content", std::move(content)}});
}

void messages_choice(Conversation& c, const Json& choice, Errors& errors) {
  using Kind = ToolChoice::Kind;
  if (choice.is_null()) return;
  const Json& type = member(choice, "type");
  if (type == "none")
    c.choice.kind = Kind::kNone;
  else if (type == "any")
    c.choice.kind = Kind::kRequired;
  else if (type == "tool" && member(choice, "name").is_string())
    c.choice = {Kind::kNamed, choice["name"].get<std::string>()};
  else if (type != "auto")
    errors.bad("tool_choice.type", "tool_choice.type must be auto, any, none, or tool with a name");
  if (member(choice, "disable_parallel_tool_use") == true) c.parallel_calls = false;
}

}  // namespace

Conversation read_messages_api(Fields& f, const ConversationRules& rules, Errors& errors) {
  Conversation c;
  if (f.messages.is_null()) errors.bad("messages", "messages is missing", "missing");
  read_system(c, f.system, errors);
  for (size_t i = 0; i < f.messages.size() && !errors.any(); ++i) {
    const std::string param = fmt::format("messages[{}]", i);
    const Json &role = member(f.messages[i], "role"), &content = member(f.messages[i], "content");
    if (content.is_null())
      errors.bad(param + ".content", param + ".content is missing", "missing");
    else if (role == "user")
      read_user(c, content, param + ".content", errors);
    else if (role == "assistant")
      read_assistant(c, content, param + ".content", errors);
    else if (role == "system")
      c.messages.push_back({{"role", "system"}, {"content", read_parts(c, content, param + ".content", errors)}});
    else
      errors.bad(param + ".role", param + ".role must be user or assistant");
  }
  for (size_t i = 0; i < f.tools.size() && !errors.any(); ++i) {
    const Json &tool = f.tools[i], &type = member(tool, "type");
    const std::string param = fmt::format("tools[{}]", i);
    if (!type.is_null() && type != "custom")
      errors.bad(param + ".type", param + ".type: tools that a server runs are not offered");
    else
      add_tool(c, member(tool, "name"), member(tool, "description"), member(tool, "input_schema"), Json(), param,
               errors);
  }
  messages_choice(c, f.tool_choice, errors);
  if (!errors.any()) check_conversation(c, rules, errors);
  return c;
}

}  // namespace lathe::serve
