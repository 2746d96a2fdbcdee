#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// One call of a tool. arguments: a JSON object, keys in the order of the output.
struct ParsedCall {
  std::string name, arguments;
};

// A generated text, taken apart (model.md 14.1): what stands before </think> is reasoning (all of it, if that never
// comes), the rest content and tool calls. A call that can't be read stays in the content as it is.
struct ParsedText {
  std::string reasoning, content;
  std::vector<ParsedCall> calls;
};

// tools: the request's list of tools as JSON, whose schemas tell which arguments are strings; may be "". An argument
// that isn't declared as a string is read as JSON, and kept as text where it is none.
ParsedText parse_output(std::string_view text, std::string_view tools_json = "");

}  // namespace lathe
