#include "serve/conversation.h"

// The conversation of /v1/responses: items become messages in the form of templates. Reasoning and calls of one turn
// join the assistant's message of that turn.
namespace lathe::serve {

namespace {

Json item_content(Conversation& c, const Json& content, const std::string& param, Errors& errors) {
  if (content.is_string()) return content;
  if (!content.is_array()) {
    errors.bad(param, param + " must be a string or a list of parts", "invalid_type");
    return "";
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& type = member(content[i], "type");
    if (type == "input_text" || type == "output_text" || type == "text" || type == "refusal")
      parts.push_back(text_part(member(content[i], type == "refusal" ? "refusal" : "text"), at, errors));
    else if (type == "input_image")
      add_image_part(c, parts, member(content[i], "image_url"), at + ".image_url", errors);
    else
      errors.bad(at + ".type", at + ".type must be input_text, output_text or input_image");
  }
  return joined_parts(std::move(parts));
}

// The assistant's message of the turn that the last item belongs to.
Json& assistant(Conversation& c, bool& open) {
  if (!open) c.messages.push_back({{"role", "assistant"}, {"content", ""}});
  open = true;
  return c.messages.back();
}

std::string reasoning_text(const Json& item) {
  std::string text;
  for (const char* list : {"content", "summary"}) {
    const Json& parts = member(item, list);
    for (size_t i = 0; parts.is_array() && i < parts.size(); ++i)
      if (member(parts[i], "text").is_string()) text += parts[i]["text"].get_ref<const std::string&>();
    if (!text.empty()) break;
  }
  return text;
}

void item_message(Conversation& c, const Json& item, const std::string& param, bool& open, Errors& errors) {
  const Json& role_of = member(item, "role");
  std::string role = role_of.is_string() ? role_of.get<std::string>() : "";
  if (role == "developer") role = "system";
  if (role != "user" && role != "assistant" && role != "system")
    return errors.bad(param + ".role", param + ".role must be one of user, assistant, system, developer");
  Json content = item_content(c, member(item, "content"), param + ".content", errors);
  if (role == "assistant") {
    const bool after_text = open && (c.messages.back()["content"] != "" || c.messages.back().contains("tool_calls"));
    if (after_text) open = false;
    assistant(c, open)["content"] = std::move(content);
    return;
  }
  open = false;
  c.messages.push_back({{"role", role}, {"content", std::move(content)}});
}

void read_item(Conversation& c, const Json& item, const std::string& param, bool& open, Errors& errors) {
  const Json& type = member(item, "type");
  if (type == "message" || (type.is_null() && item.is_object())) return item_message(c, item, param, open, errors);
  if (type == "reasoning") {
    if (open && (c.messages.back()["content"] != "" || c.messages.back().contains("tool_calls"))) open = false;
    if (const std::string text = reasoning_text(item); !text.empty()) assistant(c, open)["reasoning_content"] = text;
    return;
  }
  const Json& call = member(item, "call_id");
  if (type == "function_call") {
    if (!member(item, "name").is_string() || !call.is_string())
      return errors.bad(param, param + " needs a name and a call_id");
    assistant(c, open)["tool_calls"].push_back(
        {{"id", call},
         {"type", "function"},
         {"function",
          {{"name", item["name"]},
           {"arguments", arguments_object(member(item, "arguments"), param + ".arguments", errors)}}}});
    return;
  }
  open = false;
  if (type != "function_call_output")
    return errors.bad(param + ".type",
                      param + ".type must be message, reasoning, function_call or function_call_output");
  if (!call.is_string()) return errors.bad(param + ".call_id", param + ".call_id must be a string", "invalid_type");
  c.messages.push_back({{"role", "tool"},
                        {"tool_call_id", call},
                        {"content", item_content(c, member(item, "output"), param + ".output", errors)}});
}

void responses_choice(Conversation& c, const Json& choice, Errors& errors) {
  using Kind = ToolChoice::Kind;
  if (choice.is_null() || choice == "auto") return;
  if (choice == "none")
    c.choice.kind = Kind::kNone;
  else if (choice == "required")
    c.choice.kind = Kind::kRequired;
  else if (member(choice, "type") == "function" && member(choice, "name").is_string())
    c.choice = {Kind::kNamed, choice["name"].get<std::string>()};
  else
    errors.bad("tool_choice", "tool_choice must be none, auto, required, or {\"type\": \"function\", \"name\"}");
}

}  // namespace

Conversation read_responses_input(Fields& f, const ConversationRules& rules, Errors& errors) {
  Conversation c;
  c.parallel_calls = f.parallel_tool_calls.value_or(true);
  if (f.store.value_or(false))
    errors.bad("store", "store must be false: this server keeps no responses", "unsupported");
  if (f.previous_response_id)
    errors.bad("previous_response_id", "previous_response_id: this server keeps no responses; send the whole input",
               "unsupported");
  if (f.background.value_or(false)) errors.bad("background", "background must be false", "unsupported");
  if (f.instructions.is_string())
    c.messages.push_back({{"role", "system"}, {"content", f.instructions}});
  else if (!f.instructions.is_null())
    errors.bad("instructions", "instructions must be a string", "invalid_type");
  if (f.input.is_string())
    c.messages.push_back({{"role", "user"}, {"content", f.input}});
  else if (!f.input.is_array())
    errors.bad("input", "input must be a string or a list of items", f.input.is_null() ? "missing" : "invalid_type");
  bool open = false;
  for (size_t i = 0; f.input.is_array() && i < f.input.size() && !errors.any(); ++i)
    read_item(c, f.input[i], fmt::format("input[{}]", i), open, errors);
  for (size_t i = 0; i < f.tools.size() && !errors.any(); ++i) {
    const Json& tool = f.tools[i];
    const std::string param = fmt::format("tools[{}]", i);
    if (member(tool, "type") != "function")
      errors.bad(param + ".type", param + ".type must be function: tools that a server runs are not offered");
    else
      add_tool(c, member(tool, "name"), member(tool, "description"), member(tool, "parameters"), member(tool, "strict"),
               param, errors);
  }
  responses_choice(c, f.tool_choice, errors);
  if (const Json& effort = member(f.reasoning, "effort"); effort.is_string()) {
    check_effort(effort.get<std::string>(), "reasoning.effort", errors);
    c.variables["reasoning_effort"] = effort;
  } else if (!effort.is_null()) {
    errors.bad("reasoning.effort", "reasoning.effort must be a string", "invalid_type");
  }
  if (!errors.any()) check_conversation(c, rules, errors);
  return c;
}

}  // namespace lathe::serve
