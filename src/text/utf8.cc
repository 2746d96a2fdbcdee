#include "text/utf8.h"

#include <cstring>

namespace lathe {

namespace {

using Kind = Utf8Step::Kind;
constexpr char32_t kBad = 0xFFFD;

// What may follow a lead byte: the number of bytes, and the range of the second one, which alone rules out overlong
// forms, surrogates and values past U+10FFFF.
struct Lead {
  int bytes;
  uint8_t low, high;
};

Lead lead_of(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of ASCII from `at` on, looked at eight at a time.
size_t skip_ascii(std::string_view text, size_t at) {
  uint64_t word;
  while (at + 8 <= text.size()) {
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t at) {
  const uint8_t first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {Kind::kCharacter, 1, first};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0) return {Kind::kBroken, 1, kBad};
  char32_t c = first & (0x7F >> lead.bytes);
  for (int i = 1; i < lead.bytes; ++i) {
    if (at + i >= text.size()) return {Kind::kIncomplete, static_cast<uint8_t>(i), kBad};
    const uint8_t b = static_cast<uint8_t>(text[at + i]);
    if (b < (i == 1 ? lead.low : 0x80) || b > (i == 1 ? lead.high : 0xBF))
      return {Kind::kBroken, static_cast<uint8_t>(i), kBad};
    c = c << 6 | (b & 0x3F);
  }
  return {Kind::kCharacter, static_cast<uint8_t>(lead.bytes), c};
}

bool is_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Kind::kCharacter) return false;
    at += step.bytes;
  }
  return true;
}

std::string utf8_lossy(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    out += step.kind == Kind::kCharacter ? text.substr(at, step.bytes) : kReplacement;
    at += step.bytes;
  }
  return out;
}

void append_utf8(std::string& to, char32_t c) {
  const auto tail = [&](int shift) { to += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    to += static_cast<char>(0xE0 | c >> 12);
    tail(6), tail(0);
  } else {
    to += static_cast<char>(0xF0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

size_t utf8_length(std::string_view text) {
  size_t n = 0;
  for (char b : text) n += (static_cast<uint8_t>(b) & 0xC0) != 0x80;
  return n;
}

}  // namespace lathe
