#include "engine/output_text.h"

#include "text/utf8.h"

namespace lathe {

OutputText::OutputText(const Tokenizer& tokenizer, const Request& request)
    : decoder_(tokenizer, request.skip_special_tokens), stops_(request.stop), include_stop_(request.include_stop) {}

void OutputText::grow(std::string_view text) {
  for (size_t at = text.find(kReplacement); at != std::string_view::npos; at = text.find(kReplacement, at + 1))
    ++replacements_;
  text_ += text;
}

bool OutputText::push(OutputToken token, bool stops) {
  const size_t old = text_.size();
  tokens_.push_back({std::move(token), taken_ + static_cast<int64_t>(old)});
  grow(decoder_.push(tokens_.back().token.token));
  if (stops)
    if (const auto match = stops_.find(text_, old)) {
      stopped_by_ = stops_[match->which];
      text_.resize(include_stop_ ? match->end : match->begin);
      while (!tokens_.empty() && tokens_.back().begin >= taken_ + static_cast<int64_t>(text_.size()))
        tokens_.pop_back();
      decoder_.finish();
      finished_ = true;
      certain_ = text_.size();
      return true;
    }
  certain_ = text_.size() - stops_.held_back(text_);
  return false;
}

void OutputText::finish() {
  if (finished_) return;
  grow(decoder_.finish());
  finished_ = true;
  certain_ = text_.size();
}

void OutputText::take(OutputPiece& piece) {
  piece.text.append(text_, 0, certain_);
  text_.erase(0, certain_);
  taken_ += static_cast<int64_t>(certain_);
  certain_ = 0;
  while (!tokens_.empty() && (finished_ || tokens_.front().begin < taken_)) {
    piece.tokens.push_back(std::move(tokens_.front().token));
    tokens_.pop_front();
  }
}

}  // namespace lathe
