#pragma once

#include <optional>

#include "serve/conversation.h"
#include "text/grammar/grammar.h"

namespace lathe::serve {

// What the output must look like, from response_format and its relatives; absent: anything. At most one may be given.
std::optional<GrammarSource> read_structure(const Fields& fields, Errors& errors);
// The field that asked for it.
std::string structure_param(const Fields& fields);

// What tool_choice forces: calls of any tool, or of one; absent where it forces nothing.
std::optional<GrammarSource> forced_calls(const Conversation& conversation);

}  // namespace lathe::serve
