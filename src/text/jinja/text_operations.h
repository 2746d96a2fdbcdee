#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/value.h"

// What Python's strings can do, byte for byte traceable to where it came from.
namespace lathe::jinja {

enum class Side { kLeft, kRight, kBoth };

Text part(const Text& text, size_t begin, size_t end);
// Without characters of `chars` (white space if null) at its ends.
Text stripped(const Text& text, const Text* chars, Side side);
Text replaced(Machine& machine, const Text& text, std::string_view old, const Text& by,
              int64_t count);  // count < 0: all
// At `separator`, or at runs of white space if null; at most `count` cuts, from the given side.
std::vector<Value> split(Machine& machine, const Text& text, const Text* separator, int64_t count, Side from);
std::vector<Value> split_lines(Machine& machine, const Text& text, bool keep_ends);
// Values as str() shows them, `separator` between them.
Text joined(Machine& machine, const Text& separator, const std::vector<Value>& items);

bool every(std::string_view text, bool (*holds)(char32_t));  // of at least one character
bool has_case(std::string_view text, bool upper);            // str.isupper, str.islower

}  // namespace lathe::jinja
