#pragma once

#include <string>

#include "text/jinja/value.h"

// Values as Python writes them.
namespace lathe::jinja {

std::string float_repr(double x);                                         // the shortest digits that read back the same
void append_str(Machine& machine, const Value& value, TextBuilder& out);  // what printing shows
void append_repr(Machine& machine, const Value& value, TextBuilder& out);

// Python's json.dumps.
struct JsonStyle {
  bool ascii = false;   // escape what isn't ASCII
  bool sorted = false;  // keys in order
  bool indented = false;
  std::string indent;  // one level's
  std::string between = ", ", colon = ": ";
};
std::string to_json(Machine& machine, const Value& value, const JsonStyle& style);

}  // namespace lathe::jinja
