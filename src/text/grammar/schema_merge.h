#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace lathe {

// What of JSON Schema is about combining schemas: references and allOf. `root` is the document.

// The schema that a "$ref" names; an error if it isn't within the document.
Result<const nlohmann::ordered_json*> resolve_reference(const nlohmann::ordered_json& root,
                                                        const std::string& reference);

// An equal schema without allOf, and without $ref beside other keywords; annotations and definitions are dropped. Parts
// of its parts may still have them.
Result<nlohmann::ordered_json> flatten_schema(const nlohmann::ordered_json& root, const nlohmann::ordered_json& schema);

// What satisfies both; both flat.
Result<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Whether it is certain that no value satisfies both: other types, other constants, or objects that a property tells
// apart. Both flat.
bool are_disjoint(const nlohmann::ordered_json& root, const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

}  // namespace lathe
