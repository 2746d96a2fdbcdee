#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "text/grammar/grammar.h"

namespace lathe {

// Reads a JSON Schema within the limits on bytes, depth, nodes and enum values, and checks that every keyword in it is
// one that we know, with a value of the right kind. The error lists all keywords that aren't supported.
Result<nlohmann::ordered_json> read_schema(std::string_view text, const GrammarLimits& limits);
Status check_schema(const nlohmann::ordered_json& schema, const GrammarLimits& limits);

// Keywords that say nothing about what is valid.
bool is_annotation(std::string_view keyword);

}  // namespace lathe
