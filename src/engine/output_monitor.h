#pragma once

#include <cstdint>
#include <span>

namespace lathe {

// Watches outputs for the two ways in which a broken engine shows without failing: text that runs in a circle, and text
// that is no characters. Only counted and logged: models do both on their own now and then.
//
// A loop is at least 128 tokens that repeat a stretch of at most 64, four times or more; garbled is an output of at
// least 64 tokens of which an eighth aren't whole characters (of random bytes three quarters aren't).
class OutputMonitor {
 public:
  enum class Finding { kNone, kLoop, kGarbled };
  // After the output has grown to `output`; `replacements`: U+FFFD in its text. Each finding is told once.
  Finding look(std::span<const int32_t> output, int replacements);

 private:
  size_t looked_at_ = 0;
  bool loop_ = false, garbled_ = false;
};

// Whether the last tokens are one stretch of at most `longest` tokens again and again: `least` tokens of it, and four
// times.
bool runs_in_circle(std::span<const int32_t> tokens, int longest, int least);

}  // namespace lathe
