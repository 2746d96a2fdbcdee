#include "text/nfc.h"

#include <utf8proc.h>

#include <cstdlib>

#include "base/check.h"
#include "text/utf8.h"

namespace lathe {

namespace {

// True for characters that neither change by themselves nor combine with what stands before them: they may begin
// a stretch that is left alone. False is always safe.
bool inert(char32_t c) {
  if (c < 0x300) return true;
  if ((c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x4E00 && c <= 0x9FFF)) return true;  // Hangul syllables, ideographs
  if (c >= 0x1100 && c <= 0x11FF) return false;                                   // jamo compose by arithmetic
  const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  // comb_index: below 0x8000 something may follow and combine, from there on this may combine with what precedes.
  const bool second = p->comb_index != UINT16_MAX && p->comb_index >= 0x8000;
  return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX && !second;
}

void append_nfc(std::string& to, std::string_view stretch) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(stretch.data()),
                                          static_cast<utf8proc_ssize_t>(stretch.size()), &composed,
                                          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  LATHE_CHECK(n >= 0);  // the text is valid UTF-8
  to.append(reinterpret_cast<const char*>(composed), static_cast<size_t>(n));
  std::free(composed);
}

// Where the first stretch that may change begins, at the character in front of it; text.size() if there is none.
size_t first_change(std::string_view text, size_t from) {
  size_t before = from;
  for (size_t at = from; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (!inert(step.character)) return before;
    before = at;
    at += step.bytes;
  }
  return text.size();
}

size_t end_of_change(std::string_view text, size_t at) {
  at += utf8_step(text, at).bytes;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (inert(step.character)) break;
    at += step.bytes;
  }
  return at;
}

}  // namespace

bool is_surely_nfc(std::string_view text) { return first_change(text, 0) == text.size(); }

std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t change = first_change(text, at);
    out += text.substr(at, change - at);
    if (change == text.size()) break;
    at = end_of_change(text, change);
    append_nfc(out, text.substr(change, at - change));
  }
  return out;
}

}  // namespace lathe
