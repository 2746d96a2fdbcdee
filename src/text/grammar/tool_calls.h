#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/automaton_builder.h"
#include "text/grammar/grammar.h"

namespace lathe {

// One or more calls of tools, as GLM models write them (model.md 14.1):
//
//   <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>...</tool_call>
//
// The tags are the vocabulary's added tokens where it has them, bytes where not. NAME is a declared tool, of `names` if
// that isn't empty; K its parameters, in the order of declaration, those required all of them; V a string as it is, or
// JSON. A tool with "strict": true has its schema enforced or is refused. For others a parameter whose schema isn't
// supported has its types enforced alone.
// Adds its rules to `builder`, the text's first.
Status add_tool_calls(AutomatonBuilder& builder, const Vocabulary& vocabulary, std::string_view tools_json,
                      const std::vector<std::string>& names, bool parallel, const GrammarLimits& limits);

}  // namespace lathe
