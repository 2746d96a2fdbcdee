#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/logit_edits.h"
#include "engine/output_monitor.h"
#include "engine/output_text.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/service.h"
#include "engine/speculation.h"

namespace lathe {

struct ActiveRequest;

// Ids by which a model's outputs end or change.
struct ControlTokens {
  std::vector<int32_t> ends;                 // of an answer
  int32_t think_begin = -1, think_end = -1;  // -1: the vocabulary has none
};

// One choice of a request: its tokens, of which some lie in memory, and the output it has so far.
class Choice {
 public:
  Choice(const Request& request, int index, const Tokenizer& tokenizer, const ControlTokens& control);

  int index() const { return index_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // prompt and output
  int length() const { return static_cast<int>(tokens_.size()); }
  int output_tokens() const { return length() - prompt_; }
  std::span<const int32_t> output() const { return std::span(tokens_).subspan(prompt_); }
  int reasoning_tokens() const { return reasoning_tokens_; }
  int replacements() const { return text_.replacements(); }
  std::optional<FinishReason> finish() const { return finish_; }

  // A drawn token. In the order grammar end, stop id, stop string, eos, length, the first that holds ends the choice.
  void take(const Drawn& drawn, int max_context);
  // What has become certain of the output since the last call; false if there is nothing to tell.
  bool take_piece(OutputPiece& piece);

  // -- the step loop's
  ActiveRequest* owner = nullptr;
  SequenceId sequence = -1;     // -1: nothing of it is in memory
  std::vector<int32_t> drafts;  // after tokens(), to be verified
  PrefixKeys keys;              // of tokens(), as far as they were needed
  int pause = 0;                // a prefill stops here once, for a checkpoint; 0: it doesn't
  Acceptance acceptance;
  OutputMonitor monitor;

 private:
  friend class Lookahead;
  bool is_end(int32_t token) const;
  bool ends_answer(int32_t token) const;
  void follow_reasoning(int32_t token);
  void end(FinishReason reason);

  const Request* request_;
  const ControlTokens* control_;
  int index_, prompt_;
  std::vector<int32_t> tokens_;
  std::optional<FinishReason> finish_;
  OutputText text_;
  LogitEdits edits_;
  std::vector<int32_t> forbidden_;  // until min_tokens
  std::optional<GrammarState> grammar_;
  bool masked_ = false;  // the grammar holds from the next token on
  bool finish_told_ = false, in_reasoning_ = false;
  int reasoning_tokens_ = 0;
};

// What rows point to, until they have been drawn.
struct RowStore {
  int mask_words = 0;
  std::deque<std::vector<LogitEdit>> edits;
  std::deque<std::vector<uint32_t>> masks;
  void clear() { edits.clear(), masks.clear(); }
};

// A choice as it would be after some of its drafts: what the next token may be drawn from.
class Lookahead {
 public:
  Lookahead(const Choice& choice, RowStore& store)
      : choice_(choice), store_(store), output_(choice.output_tokens()), masked_(choice.masked_) {}
  // The next token's row: its settings, position, edits and mask.
  void fill(DrawRow& row);
  // As if this token had been drawn.
  void advance(int32_t token);

 private:
  const Choice& choice_;
  RowStore& store_;
  int output_;
  void fill_mask(DrawRow& row);
  std::optional<LogitEdits> edits_;      // once they differ from the choice's
  std::optional<GrammarState> grammar_;  // likewise
  bool masked_, lost_ = false;           // lost: a draft that can't come; what follows is never looked at
};

// A request in flight.
struct ActiveRequest {
  Request request;
  EventSink sink;
  SteadyTime submitted;
  std::optional<SteadyTime> admitted, first_token, last_token;
  std::vector<std::unique_ptr<Choice>> choices;  // made when it is admitted
  bool forked = false;                           // the prompt is in memory and every choice on its own
  bool started = false;                          // kStarted was told
  bool over = false;
  int64_t serial = 0;           // in a trace
  const char* phase = nullptr;  // likewise: what it is in
  std::vector<OutputToken> prompt_logprobs;
  PictureFeatures pictures;
  std::deque<size_t> to_encode;  // pictures without which it can't go on
  double encode_seconds = 0;
  Usage usage;
};

}  // namespace lathe
