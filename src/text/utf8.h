#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

// One step over UTF-8 bytes: a character, or a maximal piece that can't become one.
struct Utf8Step {
  enum class Kind : uint8_t { kCharacter, kBroken, kIncomplete };  // incomplete: the text ends inside a character
  Kind kind;
  uint8_t bytes;       // at least 1
  char32_t character;  // U+FFFD unless kCharacter
};

// `at` < text.size(). Surrogates, overlong forms and values past U+10FFFF are broken; a broken piece is as long as the
// longest prefix of a valid character (Unicode's "substitution of maximal subparts"), so that a reader that replaces
// each piece by one U+FFFD agrees with everybody else's.
Utf8Step utf8_step(std::string_view text, size_t at);

bool is_utf8(std::string_view text);
// Every broken or incomplete piece becomes one U+FFFD.
std::string utf8_lossy(std::string_view text);
void append_utf8(std::string& to, char32_t character);

// Characters of valid UTF-8.
size_t utf8_length(std::string_view text);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace lathe
