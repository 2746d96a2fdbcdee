#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/stop_strings.h"
#include "text/stream_decoder.h"

namespace lathe {

// The text of one choice as its tokens come. Text that may yet become a stop string, and tokens whose text hasn't gone
// out, are held back; so text and tokens always end at one point.
class OutputText {
 public:
  OutputText(const Tokenizer& tokenizer, const Request& request);

  // True if a stop string was met: the text now ends there. `stops`: whether one may end it yet.
  bool push(OutputToken token, bool stops);
  void finish();  // nothing more comes: what is held back goes out
  // What has become certain since the last call.
  void take(OutputPiece& piece);
  bool anything() const { return certain_ > 0; }
  const std::string& stopped_by() const { return stopped_by_; }
  // Characters of the output that were no characters: U+FFFD in place of broken bytes.
  int replacements() const { return replacements_; }

 private:
  struct Held {
    OutputToken token;
    int64_t begin;  // byte of the whole output at which its text begins
  };
  void grow(std::string_view text);

  StreamDecoder decoder_;
  StopStrings stops_;
  bool include_stop_;
  std::string text_, stopped_by_;  // not yet taken
  int64_t taken_ = 0;              // bytes before it
  size_t certain_ = 0;             // bytes of text_ that may go out
  std::deque<Held> tokens_;
  bool finished_ = false;
  int replacements_ = 0;
};

}  // namespace lathe
