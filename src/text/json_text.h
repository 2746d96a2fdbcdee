#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// What kinds of JSON value something is or may be: a set.
struct JsonTypes {
  enum : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kNumber = 8, kString = 16, kArray = 32, kObject = 64 };
  uint8_t bits = 0;
  bool none() const { return bits == 0; }
  bool has(uint8_t type) const { return (bits & type) != 0; }
  friend bool operator==(JsonTypes, JsonTypes) = default;
};

// Follows one JSON value (RFC 8259, white space around it) byte by byte without building it, so that numbers of any
// size pass unchanged. Stricter than the grammar in one thing: a \u escape must not be half of a surrogate pair.
class JsonFollower {
 public:
  void push(std::string_view text);  // valid UTF-8
  bool failed() const { return at_ == At::kFailed; }
  bool complete() const;  // what was pushed is a whole value
  bool in_string() const { return at_ == At::kString || at_ == At::kEscape || at_ == At::kHex; }
  uint8_t type() const { return type_; }  // of the outermost value, as far as it was seen; 0 before it
  bool in_container() const { return !open_.empty(); }

 private:
  enum class At : uint8_t {
    kValue,
    kFirstItem,
    kFirstKey,
    kKey,
    kColon,
    kAfter,
    kString,
    kEscape,
    kHex,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kE,
    kESign,
    kExponent,
    kWord,
    kDone,
    kFailed
  };
  void push(char c);
  void begin_value(char c);
  void end_value();
  void begin(uint8_t type) {
    if (type_ == 0) type_ = type;
  }

  static constexpr size_t kMostDepth = 1000;
  At at_ = At::kValue;
  uint8_t type_ = 0;
  bool key_ = false;        // the string is a key
  std::vector<bool> open_;  // brackets not closed yet: true for an object
  std::string_view word_;   // what's left of true, false, null
  int hex_ = 0, unit_ = 0;  // digits left of a \u escape, its value
  bool high_ = false;       // the first half of a surrogate pair came, the second must follow
};

// `text` as it stands between the quotes of a JSON string.
void append_json_escaped(std::string& to, std::string_view text);

}  // namespace lathe
