#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/fields.h"

// What a client sends as a conversation, in the one form that templates read: messages with roles system, user,
// assistant, tool; content a string, or a list of {"type": "text"} and {"type": "image"} parts; arguments of calls as
// objects. Each API has a reader of its own for it.
namespace lathe::serve {

struct ImageSource {
  std::string url, param;  // where it stood in the request
};

struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // of kNamed
};

struct Conversation {
  Json messages = Json::array();
  Json tools = Json::array();  // [{"type": "function", "function": {...}}]
  ToolChoice choice;
  bool parallel_calls = true;
  Json variables = Json::object();  // of the template
  std::vector<ImageSource> images;  // in the order of the image parts
  bool generation_prompt = true;
};

struct ConversationRules {
  bool strict = false;  // reject_unknown_fields: a tool message without its call is refused, too
  std::vector<std::string> template_keys;
};

Conversation read_chat(Fields& fields, const ConversationRules& rules, Errors& errors);
Conversation read_messages_api(Fields& fields, const ConversationRules& rules, Errors& errors);
Conversation read_responses_input(Fields& fields, const ConversationRules& rules, Errors& errors);

// Pieces that the readers share.

// Adds a tool in the form of templates; checks its name and the limits of its schema.
void add_tool(Conversation& c, const Json& name, const Json& description, const Json& parameters, const Json& strict,
              const std::string& param, Errors& errors);
// Arguments as clients send them (object, JSON text, "" or null) as an object.
Json arguments_object(const Json& arguments, const std::string& param, Errors& errors);
void read_template_keys(Conversation& c, const Json& kwargs, const ConversationRules& rules, Errors& errors);
void check_effort(const std::string& effort, const std::string& param, Errors& errors);
// Number of messages, names of the chosen tool, calls that tool messages answer.
void check_conversation(Conversation& c, const ConversationRules& rules, Errors& errors);
Json text_part(const Json& text, const std::string& param, Errors& errors);
void add_image_part(Conversation& c, Json& parts, const Json& url, const std::string& param, Errors& errors);
// A list of texts as one string; with pictures it stays a list.
Json joined_parts(Json parts);

}  // namespace lathe::serve
