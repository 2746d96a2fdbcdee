#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace lathe::jinja {

// Methods of Python's str, dict and list that read; those that change their object don't exist here.
using Method = Value (*)(Machine& machine, const Value& self, Arguments& arguments);
Method find_method(const Value& self, std::string_view name);  // null: there is none
Method find_text_method(std::string_view name);

}  // namespace lathe::jinja
