#include "engine/choice.h"

#include <algorithm>

namespace lathe {

Choice::Choice(const Request& request, int index, const Tokenizer& tokenizer, const ControlTokens& control)
    : request_(&request),
      control_(&control),
      index_(index),
      prompt_(static_cast<int>(request.prompt.size())),
      tokens_(request.prompt),
      text_(tokenizer, request),
      edits_(request) {
  if (request.min_tokens > 0) {
    forbidden_ = request.stop_tokens;
    if (!request.ignore_eos) forbidden_.insert(forbidden_.end(), control.ends.begin(), control.ends.end());
  }
  for (int32_t token : request.prompt)
    if (token == control.think_begin || token == control.think_end) in_reasoning_ = token == control.think_begin;
  if (control.think_begin < 0) in_reasoning_ = false;
  if (request.grammar) {
    grammar_.emplace(request.grammar);
    masked_ = !request.grammar_after_reasoning || !in_reasoning_;
  }
}

bool Choice::is_end(int32_t token) const {
  return std::find(control_->ends.begin(), control_->ends.end(), token) != control_->ends.end();
}

bool Choice::ends_answer(int32_t token) const { return !request_->ignore_eos && is_end(token); }

void Choice::follow_reasoning(int32_t token) {
  if (control_->think_begin < 0) return;
  if (token == control_->think_begin) in_reasoning_ = true;
  reasoning_tokens_ += in_reasoning_;
  if (token == control_->think_end) in_reasoning_ = false;
}

void Choice::end(FinishReason reason) {
  finish_ = reason;
  drafts.clear();
  text_.finish();
}

void Choice::take(const Drawn& drawn, int max_context) {
  const int32_t token = drawn.token;
  tokens_.push_back(token);
  edits_.count(token);
  follow_reasoning(token);
  const bool may_end = output_tokens() > request_->min_tokens;
  bool grammar_ends = false;
  if (masked_ && grammar_->advance(token)) grammar_ends = grammar_->must_end();
  if (grammar_ && token == control_->think_end) masked_ = true;
  const auto& stops = request_->stop_tokens;
  const bool stop = std::find(stops.begin(), stops.end(), token) != stops.end();
  // Under a grammar an end also counts where it is to be ignored: nothing else ends the text.
  if (!grammar_ends && (stop || ends_answer(token) || (masked_ && is_end(token)))) return end(FinishReason::kStop);
  OutputToken out{.token = token, .logprob = std::nullopt, .best = drawn.best};
  if (request_->logprobs >= 0) out.logprob = drawn.logprob;
  if (text_.push(std::move(out), may_end && !grammar_ends) || grammar_ends) return end(FinishReason::kStop);
  if (output_tokens() >= request_->max_tokens || length() >= max_context) end(FinishReason::kLength);
}

bool Choice::take_piece(OutputPiece& piece) {
  piece.choice = index_;
  text_.take(piece);
  const bool told = finish_told_ || !finish_;
  if (!told) piece.finish = finish_, piece.stopped_by = text_.stopped_by(), finish_told_ = true;
  return !told || !piece.text.empty() || !piece.tokens.empty();
}

void Lookahead::fill(DrawRow& row) {
  const Request& r = *choice_.request_;
  row.position = choice_.prompt_ + output_;
  row.settings = r.sampling;
  row.settings.seed += static_cast<uint64_t>(choice_.index_);
  row.best = r.logprobs;
  row.penalties = {r.presence_penalty, r.frequency_penalty, r.repetition_penalty};
  const LogitEdits& edits = edits_ ? *edits_ : choice_.edits_;
  if (output_ < r.min_tokens && !choice_.forbidden_.empty()) {
    LogitEdits all = edits;
    for (int32_t token : choice_.forbidden_) all.forbid(token);
    row.edits = store_.edits.emplace_back(all.list().begin(), all.list().end());
  } else if (edits_) {
    row.edits = store_.edits.emplace_back(edits.list().begin(), edits.list().end());
  } else {
    row.edits = edits.list();
  }
  if (masked_ && !lost_) fill_mask(row);
}

void Lookahead::fill_mask(DrawRow& row) {
  const GrammarState& state = grammar_ ? *grammar_ : *choice_.grammar_;
  const std::span<const int32_t> ends = choice_.control_->ends;
  std::vector<uint32_t>& mask = store_.masks.emplace_back(store_.mask_words);
  const bool too_early = output_ < choice_.request_->min_tokens;
  bool any = state.allowed(too_early ? std::span<const int32_t>() : ends, mask);
  // Nothing but the end can follow: then it comes before min_tokens.
  if (!any && too_early && state.allowed(ends, mask)) any = true, row.edits = {};
  row.allowed = mask;
  row.dead_end = !any;
}

void Lookahead::advance(int32_t token) {
  ++output_;
  if (choice_.edits_.counts()) {
    if (!edits_) edits_ = choice_.edits_;
    edits_->count(token);
  }
  if (!choice_.grammar_) return;
  if (masked_) {
    if (!grammar_) grammar_ = choice_.grammar_;
    lost_ |= !grammar_->advance(token);
  }
  masked_ |= token == choice_.control_->think_end;
}

}  // namespace lathe
