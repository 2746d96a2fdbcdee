#include "text/grammar/character_set.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/json_text.h"
#include "text/utf8.h"

namespace lathe {

namespace {
constexpr char32_t kLast = 0x10ffff, kSurrogates = 0xd800, kPastSurrogates = 0xe000;
}  // namespace

void CharacterSet::settle() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  std::vector<Range> out;
  for (const Range& r : ranges_) {
    if (!out.empty() && r.low <= out.back().high + 1)
      out.back().high = std::max(out.back().high, r.high);
    else
      out.push_back(r);
  }
  ranges_ = std::move(out);
}

CharacterSet& CharacterSet::add(char32_t low, char32_t high) {
  if (low < kSurrogates && high >= kSurrogates) add(low, kSurrogates - 1);
  if (high >= kSurrogates && low < kPastSurrogates) low = kPastSurrogates;
  if (low <= high) ranges_.push_back({low, high});
  settle();
  return *this;
}

CharacterSet& CharacterSet::add(const CharacterSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  settle();
  return *this;
}

CharacterSet CharacterSet::complement() const {
  CharacterSet out;
  char32_t next = 0;
  auto gap = [&](char32_t low, char32_t high) {  // without surrogates
    if (low < kSurrogates) out.ranges_.push_back({low, std::min<char32_t>(high, kSurrogates - 1)});
    if (high >= kPastSurrogates) out.ranges_.push_back({std::max<char32_t>(low, kPastSurrogates), high});
  };
  for (const Range& r : ranges_) {
    if (r.low > next) gap(next, r.low - 1);
    next = r.high + 1;
  }
  if (next <= kLast) gap(next, kLast);
  out.settle();
  return out;
}

CharacterSet CharacterSet::intersection(const CharacterSet& other) const {
  CharacterSet out = complement();
  return out.add(other.complement()).complement();
}

CharacterSet CharacterSet::with_other_case() const {
  CharacterSet out = *this;
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    const char32_t upper = c - 'a' + 'A';
    if (contains(c)) out.ranges_.push_back({upper, upper});
    if (contains(upper)) out.ranges_.push_back({c, c});
  }
  out.settle();
  return out;
}

bool CharacterSet::contains(char32_t c) const {
  const auto at = std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.high < c; });
  return at != ranges_.end() && at->low <= c;
}

CharacterSet CharacterSet::of_category(std::string_view name) {
  CharacterSet out;
  if (name.empty() || name.size() > 2) return out;
  for (char32_t c = 0; c <= kLast; ++c) {
    if (c == kSurrogates) c = kPastSurrogates;
    if (!std::string_view(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))).starts_with(name)) continue;
    if (!out.ranges_.empty() && out.ranges_.back().high + 1 == c)
      out.ranges_.back().high = c;
    else
      out.ranges_.push_back({c, c});
  }
  return out;
}

namespace {

// Characters low..high, whose UTF-8 is equally long, as byte ranges: split until all bytes but the first differing one
// run over their whole range.
void add_utf8(AutomatonBuilder& builder, int32_t from, char32_t low, char32_t high, int32_t to, uint8_t flags) {
  if (high <= 0x7f) return builder.range(from, static_cast<Symbol>(low), static_cast<Symbol>(high), to, flags);
  for (int shift = 6; shift <= 18; shift += 6) {
    const char32_t rest = (char32_t{1} << shift) - 1;
    if ((low >> shift) == (high >> shift)) break;
    if ((low & rest) != 0) {
      add_utf8(builder, from, low, low | rest, to, flags);
      return add_utf8(builder, from, (low | rest) + 1, high, to, flags);
    }
    if ((high & rest) != rest) {
      add_utf8(builder, from, low, (high & ~rest) - 1, to, flags);
      return add_utf8(builder, from, high & ~rest, high, to, flags);
    }
  }
  std::string first, last;
  append_utf8(first, low);
  append_utf8(last, high);
  for (size_t i = 0; i < first.size(); ++i) {
    const int32_t next = i + 1 == first.size() ? to : builder.add_state();
    builder.range(from, static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]), next,
                  i == 0 ? flags : uint8_t{0});
    from = next;
  }
}

void add_plain(AutomatonBuilder& builder, int32_t from, char32_t low, char32_t high, int32_t to, uint8_t flags) {
  for (const char32_t end : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}, kLast}) {
    if (low > high) return;
    if (low > end) continue;
    add_utf8(builder, from, low, std::min(high, end), to, flags);
    low = end + 1;
  }
}

}  // namespace

void add_characters(AutomatonBuilder& builder, int32_t from, const CharacterSet& set, int32_t to, Writing writing,
                    uint8_t flags) {
  if (writing == Writing::kPlain) {
    for (const auto& r : set.ranges()) add_plain(builder, from, r.low, r.high, to, flags);
    return;
  }
  CharacterSet escaped;
  escaped.add(0, 0x1f).add('"', '"').add('\\', '\\');
  const CharacterSet as_they_are = set.intersection(escaped.complement()), as_escapes = set.intersection(escaped);
  for (const auto& r : as_they_are.ranges()) add_plain(builder, from, r.low, r.high, to, flags);
  for (const auto& r : as_escapes.ranges()) {
    for (char32_t c = r.low; c <= r.high; ++c) {
      std::string written;
      append_json_escaped(written, std::string(1, static_cast<char>(c)));
      const int32_t next = builder.add_state();
      builder.range(from, static_cast<uint8_t>(written[0]), static_cast<uint8_t>(written[0]), next, flags);
      builder.text(next, std::string_view(written).substr(1), to);
    }
  }
}

}  // namespace lathe
