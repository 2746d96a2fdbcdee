#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/output_stream.h"

namespace lathe {

// One call of a tool. arguments: a JSON object, keys in the order of the output.
struct ParsedCall {
  std::string name, arguments;
};

// A generated text whose prompt ended with <think>, taken apart (model.md 14.1): OutputStream over the whole. A call
// that can't be read stays in the content as it is.
struct ParsedText {
  std::string reasoning, content;
  std::vector<ParsedCall> calls;
};

// tools: the request's list of tools as JSON, whose schemas tell which arguments are strings; may be "".
ParsedText parse_output(std::string_view text, std::string_view tools_json = "", CallNames names = CallNames::kAny);

}  // namespace lathe
