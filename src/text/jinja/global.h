#pragma once

#include <string>

#include "text/jinja/value.h"

namespace lathe::jinja {

// A function that every template has: range, dict, namespace, raise_exception, strftime_now. Undefined: none of that
// name.
Value find_global(const std::string& name);

}  // namespace lathe::jinja
