#pragma once

#include <optional>
#include <string>
#include <string_view>

// A reader of JSON as profilers write it: it stops at nothing that one can step over. Accepts NaN, Infinity, raw
// control characters and unknown escapes in strings, and a text that is cut off. Values that nobody asked for are
// skipped without being built. Never allocates for structure, so depth is no danger.
namespace lathe {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  // The next character that isn't white space; 0 at the end. Doesn't consume it.
  char peek();
  bool take(char c);  // consumes c if it is next
  bool at_end() { return peek() == 0; }
  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }

  // A string, decoded; nothing if none begins here or the text ends within it.
  std::optional<std::string> string();
  // Any value as its text; nothing if the text ends within it or no value begins here.
  std::optional<std::string_view> skip();
  // After an error: to the next place where an object of a list begins ("{" followed by a key). False at the end.
  bool find_object();

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace lathe
