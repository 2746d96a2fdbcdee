#pragma once

#include <optional>
#include <string_view>

namespace lathe {

// A pattern for a "format" of JSON Schema; nothing for one that isn't known. Each matches part of what the format
// allows, in its usual spelling, and nothing else: no 29 February, no quoted local part of an address.
std::optional<std::string_view> pattern_of_format(std::string_view format);
std::string_view known_formats();

}  // namespace lathe
