#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace lathe::jinja {

// x | name(arguments)
struct FilterEntry {
  std::string_view name;
  Value (*apply)(Machine& machine, const Value& input, Arguments& arguments);
};

const FilterEntry* find_filter(std::string_view name);  // null: there is none

}  // namespace lathe::jinja
