#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/grammar/automaton_builder.h"

namespace lathe {

// A set of Unicode characters.
class CharacterSet {
 public:
  struct Range {
    char32_t low, high;
  };

  static CharacterSet of(char32_t c) { return CharacterSet().add(c, c); }
  static CharacterSet all() { return CharacterSet().complement(); }
  // Of a general category, by one letter or two: "L", "Lu", ...; nothing if there's none of that name.
  static CharacterSet of_category(std::string_view name);

  CharacterSet& add(char32_t low, char32_t high);
  CharacterSet& add(const CharacterSet& other);
  CharacterSet complement() const;  // surrogates are no characters
  CharacterSet intersection(const CharacterSet& other) const;
  CharacterSet with_other_case() const;  // of the letters A to Z
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // sorted, apart

 private:
  void settle();
  std::vector<Range> ranges_;
};

// How characters are written.
enum class Writing {
  kPlain,       // UTF-8
  kJsonString,  // between the quotes of a JSON string: quote, backslash and control characters as their short escape
};

// One character of the set, from one state to another. Its first byte has `flags` (Automaton::EdgeFlags).
void add_characters(AutomatonBuilder& builder, int32_t from, const CharacterSet& set, int32_t to, Writing writing,
                    uint8_t flags = 0);

}  // namespace lathe
