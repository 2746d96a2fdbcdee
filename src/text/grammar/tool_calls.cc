#include "text/grammar/tool_calls.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "text/grammar/schema.h"
#include "text/grammar/schema_check.h"
#include "text/tool_types.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

class ToolCalls {
 public:
  ToolCalls(AutomatonBuilder& builder, const Vocabulary& vocabulary, std::string_view tools_json,
            const GrammarLimits& limits)
      : b_(builder), vocabulary_(vocabulary), types_(tools_json), limits_(limits), json_(builder) {}

  Status add(const Json& tools, const std::vector<std::string>& names, bool parallel) {
    const int32_t text = b_.add_rule("text");
    plain_text_ = add_plain_text();
    const int32_t begin = after_tag(b_.rule(text).begin, "<tool_call>"), end = b_.add_state();
    int declared = 0;
    for (const Json& tool : tools) {
      if (!tool.is_object()) return invalid("tools: each must be an object");
      const Json& function = tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
        return invalid("tools: each must have a name");
      const std::string& name = function["name"].get_ref<const std::string&>();
      if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
      if (name.empty() || name.find_first_of(" \t\r\n<") != std::string::npos)
        return invalid("tools: '{}' can't be a name in a call", name);
      ++declared;
      LATHE_RETURN_IF_ERROR(add_tool(b_.text(begin, name), function, end).within("tool '" + name + "'"));
    }
    if (declared == 0)
      return invalid("tools: none to call{}", names.empty() ? "" : " of the name that tool_choice gives");
    const int32_t closed = after_tag(end, "</tool_call>");
    b_.empty(closed, b_.rule(text).end);
    if (parallel) b_.empty(closed, b_.rule(text).begin);
    return b_.budget().status();
  }

 private:
  int32_t after_tag(int32_t from, std::string_view tag) {
    const auto& added = vocabulary_.added();
    const auto token = std::find_if(added.begin(), added.end(), [&](const AddedToken& t) { return t.content == tag; });
    if (token == added.end()) return b_.text(from, tag);
    const Symbol symbol = static_cast<Symbol>(kFirstAddedSymbol + (token - added.begin()));
    const int32_t to = b_.add_state();
    b_.range(from, symbol, symbol, to);
    return to;
  }

  // Any characters, but for </arg_value> spelled out: as many states as the tag has bytes that may have been read.
  int32_t add_plain_text() {
    constexpr std::string_view kEnd = "</arg_value>";
    const int32_t r = b_.add_rule("plain text");
    const auto rule = b_.rule(r);
    std::vector<int32_t> read = {rule.begin};
    while (read.size() < kEnd.size()) read.push_back(b_.add_state());
    const CharacterSet angle = CharacterSet::of('<');
    for (size_t i = 0; i < kEnd.size(); ++i) {
      b_.empty(read[i], rule.end);
      const CharacterSet next = CharacterSet::of(static_cast<uint8_t>(kEnd[i]));
      if (i + 1 < kEnd.size()) add_characters(b_, read[i], next, read[i + 1], Writing::kPlain);
      CharacterSet others = next;
      if (i > 0) {  // the tag holds '<' only at its begin
        others.add(angle);
        add_characters(b_, read[i], angle, read[1], Writing::kPlain);
      }
      add_characters(b_, read[i], others.complement(), read[0], Writing::kPlain);
    }
    return r;
  }

  Status add_tool(int32_t from, const Json& function, int32_t to) {
    const bool strict = function.contains("strict") && function["strict"] == true;
    roots_.push_back(function.value("parameters", Json::object()));
    const Json& root = roots_.back();
    if (root.is_null()) {
      b_.empty(from, to);
      return Status::ok();
    }
    if (!root.is_object()) return invalid("parameters must be an object");
    if (strict) LATHE_RETURN_IF_ERROR(check_schema(root, limits_));
    const Json properties = root.value("properties", Json::object());
    if (!properties.is_object()) return invalid("parameters: properties must be an object");
    const Json required = root.value("required", Json::array());
    if (!required.is_array()) return invalid("parameters: required must be a list");
    if (strict)
      for (const auto& [word, ignored] : root.items())
        if (word != "type" && word != "properties" && word != "required" && word != "additionalProperties" &&
            word != "$defs" && word != "definitions" && !is_annotation(word))
          return invalid("parameters: '{}' isn't supported at the top of a strict tool", word);
    for (const Json& name : required)
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        return invalid("parameters: required names '{}', which properties doesn't declare",
                       name.is_string() ? name.get<std::string>() : name.dump());
    SchemaRules rules(b_, json_, root, plain_text_);
    for (const auto& [key, schema] : properties.items()) {
      if (key.empty() || key.find('<') != std::string::npos)
        return invalid("parameters: '{}' can't be a key in a call", key);
      LATHE_ASSIGN(const int32_t value, value_rule(rules, function["name"], key, schema, strict));
      const int32_t next = b_.add_state();
      if (std::find(required.begin(), required.end(), key) == required.end()) b_.empty(from, next);
      const int32_t named = after_tag(b_.text(after_tag(from, "<arg_key>"), key), "</arg_key>");
      const int32_t end = b_.add_state();
      b_.call(after_tag(named, "<arg_value>"), value, end);
      b_.empty(after_tag(end, "</arg_value>"), next);
      from = next;
    }
    b_.empty(from, to);
    return b_.budget().status();
  }

  Result<int32_t> value_rule(SchemaRules& rules, const std::string& tool, const std::string& key, const Json& schema,
                             bool strict) {
    Status status = check_schema(schema, limits_);
    if (status.is_ok()) {
      const auto rule = rules.add(schema, Writing::kPlain);
      if (rule.is_ok() || strict) return rule;
      LATHE_RETURN_IF_ERROR(b_.budget().status());
    }
    if (strict) return status;
    const JsonTypes types = types_.of(tool, key);
    if (types.none() || types.has(JsonTypes::kString)) return plain_text_;
    const int32_t rule = b_.add_rule("argument");
    const auto [begin, end, name] = b_.rule(rule);
    if (types.has(JsonTypes::kNull)) b_.text(begin, "null", end);
    if (types.has(JsonTypes::kBoolean)) b_.text(begin, "true", end), b_.text(begin, "false", end);
    if (types.has(JsonTypes::kNumber))
      b_.call(begin, json_.number(), end);
    else if (types.has(JsonTypes::kInteger))
      b_.call(begin, json_.integer(), end);
    if (types.has(JsonTypes::kArray)) b_.call(begin, json_.array(), end);
    if (types.has(JsonTypes::kObject)) b_.call(begin, json_.object(), end);
    return rule;
  }

  AutomatonBuilder& b_;
  const Vocabulary& vocabulary_;
  ToolTypes types_;
  const GrammarLimits& limits_;
  JsonRules json_;
  int32_t plain_text_ = -1;
  std::deque<Json> roots_;
};

}  // namespace

Status add_tool_calls(AutomatonBuilder& builder, const Vocabulary& vocabulary, std::string_view tools_json,
                      const std::vector<std::string>& names, bool parallel, const GrammarLimits& limits) {
  const Json tools = Json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return invalid("tools: a list is expected");
  return ToolCalls(builder, vocabulary, tools_json, limits).add(tools, names, parallel);
}

}  // namespace lathe
