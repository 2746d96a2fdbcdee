#pragma once

#include <string>
#include <string_view>

// Python's view of characters, from Unicode's tables.
namespace lathe::jinja {

bool is_space(char32_t c);  // str.isspace: White_Space, and the separators U+001C to U+001F
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_digit_like(char32_t c);  // decimals, superscripts, circled digits: str.isdigit
bool is_numeric(char32_t c);
bool is_printable(char32_t c);  // what repr() shows as it is

// Case by Unicode's full mappings where one character becomes several ("ß" to "SS").
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_capitalized(std::string_view text);  // first character in title case, the others lower

std::string_view strip_begin(std::string_view text);  // of white space
std::string_view strip_end(std::string_view text);

// Byte offset of the nth character from the front; text.size() behind the last.
size_t offset_of(std::string_view text, size_t nth);
// First byte of the character that ends in front of `end` > 0.
size_t previous_character(std::string_view text, size_t end);

}  // namespace lathe::jinja
