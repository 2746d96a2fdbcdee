#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace lathe {

// Text of a growing list of ids, piece by piece: every piece is whole characters, and all of them together are what
// decode() gives for the whole list. Bytes that may still become a character are held back.
class StreamDecoder {
 public:
  // The tokenizer outlives the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);
  std::string finish();  // what is held back, as U+FFFD; the decoder is then as new
  bool holds_back() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;  // the beginning of a character, at most 3 bytes
};

}  // namespace lathe
