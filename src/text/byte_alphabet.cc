#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace lathe {

namespace {

// Printable Latin-1 spells itself; the other 68 bytes take the characters from U+0100 on, in order.
constexpr bool spells_itself(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

constexpr int kCharacters = 256 + 68;

constexpr std::array<char32_t, 256> make_spelling() {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (int b = 0; b < 256; ++b) table[b] = spells_itself(b) ? static_cast<char32_t>(b) : next++;
  return table;
}
constexpr std::array<char32_t, 256> kSpelling = make_spelling();
static_assert(kSpelling[' '] == 0x120 && kSpelling['\n'] == 0x10A && kSpelling[0xAD] == kCharacters - 1);

constexpr std::array<int16_t, kCharacters> make_bytes() {
  std::array<int16_t, kCharacters> table{};
  for (auto& entry : table) entry = -1;
  for (int b = 0; b < 256; ++b) table[kSpelling[b]] = static_cast<int16_t>(b);
  return table;
}
constexpr std::array<int16_t, kCharacters> kBytes = make_bytes();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Step step = utf8_step(spelling, at);
    if (step.character >= kCharacters || kBytes[step.character] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[step.character]);
    at += step.bytes;
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (char b : bytes) append_utf8(spelling, kSpelling[static_cast<uint8_t>(b)]);
  return spelling;
}

}  // namespace lathe
