#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace lathe::jinja {

// JSON as Python's json.loads gives it to a template: keys stay in order, a repeated key keeps its last value, integers
// and floats stay apart, and an integer beyond 64 bits keeps its digits. All text is from outside.
Result<Value> value_from_json(std::string_view json, const std::string& name);

// Compact JSON; invalid for what has none (undefined values, functions).
Result<std::string> json_from_value(const Value& value);

}  // namespace lathe::jinja
