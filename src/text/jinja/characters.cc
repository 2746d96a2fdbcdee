#include "text/jinja/characters.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace lathe::jinja {

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Characters whose upper case is several characters, and whose title case differs from it.
struct Expansion {
  char32_t c;
  const char* upper;
  const char* title;
};
constexpr Expansion kExpansions[] = {
    {0x00DF, "SS", "Ss"},   {0x0149, "ʼN", "ʼN"}, {0x01F0, "J̌", "J̌"},   {0x0390, "Ϊ́", "Ϊ́"},   {0x03B0, "Ϋ́", "Ϋ́"},
    {0x0587, "ԵՒ", "Եւ"},   {0x1E96, "H̱", "H̱"},   {0x1E97, "T̈", "T̈"},   {0x1E98, "W̊", "W̊"},   {0x1E99, "Y̊", "Y̊"},
    {0x1E9A, "Aʾ", "Aʾ"},   {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"},
};
const Expansion* expansion(char32_t c) {
  for (const Expansion& e : kExpansions)
    if (e.c == c) return &e;
  return nullptr;
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }
// Marks and a few signs, which don't end a word for the final sigma.
bool case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

// A capital sigma at the end of a word becomes the final one.
bool ends_word(std::string_view text, size_t begin, size_t end) {
  size_t p = begin;
  bool before = false;
  while (p > 0) {
    p = previous_character(text, p);
    const char32_t c = utf8_step(text, p).character;
    if (case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  for (p = end; p < text.size(); p += utf8_step(text, p).bytes) {
    const char32_t c = utf8_step(text, p).character;
    if (!case_ignorable(c)) return before && !is_cased(c);
  }
  return before;
}

void append_lower(std::string& out, std::string_view text, size_t at) {
  const Utf8Step step = utf8_step(text, at);
  if (step.character == 0x0130) {
    out += "i̇";
  } else if (step.character == 0x03A3 && ends_word(text, at, at + step.bytes)) {
    append_utf8(out, 0x03C2);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.character))));
  }
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9);
}
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit_like(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2776 && c <= 0x277E);
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (const Expansion* e = expansion(step.character)) {
      out += e->upper;
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(step.character))));
    }
    at += step.bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at).bytes) append_lower(out, text, at);
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (at > 0) {
      append_lower(out, text, at);
    } else if (const Expansion* e = expansion(step.character)) {
      out += e->title;
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(step.character))));
    }
    at += step.bytes;
  }
  return out;
}

std::string_view strip_begin(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!is_space(step.character)) break;
    at += step.bytes;
  }
  return text.substr(at);
}

std::string_view strip_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t before = previous_character(text, end);
    if (!is_space(utf8_step(text, before).character)) break;
    end = before;
  }
  return text.substr(0, end);
}

size_t offset_of(std::string_view text, size_t nth) {
  size_t at = 0;
  while (nth > 0 && at < text.size()) at += utf8_step(text, at).bytes, --nth;
  return at;
}

size_t previous_character(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace lathe::jinja
