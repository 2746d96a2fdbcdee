#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace lathe::jinja {

// x is name(arguments)
struct TestEntry {
  std::string_view name;
  size_t arguments;
  bool (*holds)(Machine& machine, const Value& subject, Arguments& arguments);
};

const TestEntry* find_test(std::string_view name);  // null: there is none

}  // namespace lathe::jinja
