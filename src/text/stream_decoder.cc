#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace lathe {

std::string StreamDecoder::push(int32_t id) {
  const Vocabulary& v = tokenizer_->vocabulary();
  if (skip_special_ && v.is_special(id)) return "";
  held_ += v.bytes(id);
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Step step = utf8_step(held_, at);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    text += step.kind == Utf8Step::Kind::kCharacter ? std::string_view(held_).substr(at, step.bytes) : kReplacement;
    at += step.bytes;
  }
  held_.erase(0, at);
  return text;
}

std::string StreamDecoder::finish() {
  const std::string text = utf8_lossy(held_);
  held_.clear();
  return text;
}

}  // namespace lathe
