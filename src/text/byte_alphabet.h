#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lathe {

// Byte-level BPE files spell each byte as one printable character (GPT-2's table): a space is "Ġ", a newline "Ċ".
// The bytes behind such a spelling; nothing if a character is not of the table.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace lathe
