#include "text/output_parser.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kKey = "<arg_key>", kKeyEnd = "</arg_key>", kValue = "<arg_value>",
                           kValueEnd = "</arg_value>", kSpace = " \t\r\n";

std::string_view stripped(std::string_view s) {
  const size_t begin = s.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

// Takes `tag` from the front of `s`, after white space.
bool take(std::string_view& s, std::string_view tag) {
  const size_t begin = s.find_first_not_of(kSpace);
  if (begin == std::string_view::npos || !s.substr(begin).starts_with(tag)) return false;
  s.remove_prefix(begin + tag.size());
  return true;
}

// Text up to `tag`, which goes, too.
std::optional<std::string_view> take_until(std::string_view& s, std::string_view tag) {
  const size_t end = s.find(tag);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view text = s.substr(0, end);
  s.remove_prefix(end + tag.size());
  return text;
}

bool declared_as_string(const Json& tools, std::string_view name, const std::string& argument) {
  if (!tools.is_array()) return false;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || function.value("name", Json()) != Json(std::string(name))) continue;
    const Json::json_pointer type("/parameters/properties/" + argument + "/type");
    try {
      return function.contains(type) && function.at(type) == "string";
    } catch (const Json::exception&) {  // a name with '/' or '~' in it is no pointer
      return false;
    }
  }
  return false;
}

// The call at the front of `s`, behind its <tool_call>; s goes on after </tool_call>.
std::optional<ParsedCall> take_call(std::string_view& s, const Json& tools) {
  std::string_view rest = s;
  const size_t begin = rest.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(begin);
  const size_t name_end = std::min({rest.find_first_of(kSpace), rest.find(kKey), rest.find(kCallEnd)});
  if (name_end == std::string_view::npos || name_end == 0) return std::nullopt;
  ParsedCall call{.name = std::string(rest.substr(0, name_end)), .arguments = ""};
  rest.remove_prefix(name_end);
  Json arguments = Json::object();
  while (take(rest, kKey)) {
    const auto key = take_until(rest, kKeyEnd);
    if (!key || !take(rest, kValue)) return std::nullopt;
    const auto value = take_until(rest, kValueEnd);
    if (!value) return std::nullopt;
    const std::string name(stripped(*key));
    Json parsed = declared_as_string(tools, call.name, name) ? Json(Json::value_t::discarded)
                                                             : Json::parse(*value, nullptr, false);
    arguments[name] = parsed.is_discarded() ? Json(std::string(*value)) : std::move(parsed);
  }
  if (!take(rest, kCallEnd)) return std::nullopt;
  call.arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  s = rest;
  return call;
}

}  // namespace

ParsedText parse_output(std::string_view text, std::string_view tools_json) {
  ParsedText out;
  if (text.starts_with(kThink)) text.remove_prefix(kThink.size());
  const size_t end = text.find(kThinkEnd);
  if (end == std::string_view::npos) {
    out.reasoning = text;
    return out;
  }
  out.reasoning = text.substr(0, end);
  text.remove_prefix(end + kThinkEnd.size());
  const Json tools = tools_json.empty() ? Json() : Json::parse(tools_json, nullptr, false);
  while (!text.empty()) {
    const size_t begin = text.find(kCall);
    out.content += text.substr(0, begin);
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin + kCall.size());
    if (auto call = take_call(text, tools))
      out.calls.push_back(std::move(*call));
    else
      out.content += kCall;
  }
  if (!out.calls.empty() && stripped(out.content).empty()) out.content.clear();
  return out;
}

}  // namespace lathe
