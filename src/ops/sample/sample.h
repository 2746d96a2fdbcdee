#pragma once

#include "ops/op.h"

// The next token of each drawn row, from f32 logits, and log probabilities.
//   Edits first, fp32: a token that was seen has its logit divided by `repetition` if positive, else multiplied by it;
//   one that stands `count` times in the output loses frequency·count + presence; then its bias is added (-inf: never).
//   Tokens whose bit in the row's mask is off, ids >= vocab (padding of the matrix) and NaN are never taken. A row
//   without a finite logit that may be taken gives -1.
//   temperature 0: the greatest logit, ties to the lower id. Otherwise p = softmax(logits/temperature), restricted to
//   the top_k greatest (0: all) and renormalised, then to the smallest set of greatest p whose sum >= top_p, then to
//   p >= min_p·max p; renormalised, drawn by inversion, ids in order of falling p (ties: lower id first).
// The draw depends on (seed, position, logits) alone: u = a hash of seed and position, in [0, 1).
// Log probabilities, where wanted, are the model's own: log softmax of the logits before all of that; rank 1 is the
// greatest, ties to the lower id. Within 1e-5 of their RMS. NaN counts as -inf. Rows are independent.
namespace lathe {

struct SampleSettings {
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  uint64_t seed = 0;
};

struct Penalties {
  float presence = 0, frequency = 0, repetition = 1;
};

struct LogitEdit {
  int32_t token = 0;
  int32_t count = 0;  // in the output so far
  int32_t seen = 0;   // 1: in the prompt or the output
  float bias = 0;
};

struct SampleArgs {
  Rows logits;                           // [logit rows, >= vocab], f32
  Array<const int32_t> logit_row;        // [rows]: what each is drawn from; or empty: row r from row r
  Array<const SampleSettings> settings;  // [rows]
  Array<const int32_t> position;         // [rows]: of the token that is drawn
  Array<const Penalties> penalties;      // [rows], or empty: no edits
  Array<const int32_t> edit_start;       // [rows + 1], or empty: no edits
  Array<const LogitEdit> edits;          // those of row r: [edit_start[r], edit_start[r + 1]), each token once
  Array<const int32_t> mask;             // [rows]: which mask; -1 or empty: none
  Array<const uint32_t> allowed;         // [masks, mask_words()], bit i % 32 of word i / 32: token i may be taken
  Array<const int32_t> given;            // [rows]: taken instead of drawing; -1 or empty: drawn
  Array<const int32_t> best_wanted;      // [rows]: 0..best_width best tokens; -1 or empty: no log probabilities
  Array<int32_t> token;                  // [rows]
  // What isn't wanted is 0, tokens -1. Empty if nobody wants any.
  Array<float> logprob;           // [rows]
  Array<int32_t> rank;            // [rows]
  Array<int32_t> best_token;      // [rows·best_width], falling
  Array<float> best_logprob;      // [rows·best_width]
  int best_width = 0, vocab = 0;  //

  int64_t rows() const { return token.count; }
  int64_t mask_words() const { return (vocab + 31) / 32; }

  template <class V>
  void visit(V&& f) {
    f("logits", logits, Role::kIn), f("logit_row", logit_row, Role::kIn), f("settings", settings, Role::kIn);
    f("position", position, Role::kIn), f("penalties", penalties, Role::kIn), f("edit_start", edit_start, Role::kIn);
    f("edits", edits, Role::kIn), f("mask", mask, Role::kIn), f("allowed", allowed, Role::kIn);
    f("given", given, Role::kIn), f("best_wanted", best_wanted, Role::kIn), f("token", token, Role::kOut);
    f("logprob", logprob, Role::kOut), f("rank", rank, Role::kOut), f("best_token", best_token, Role::kOut);
    f("best_logprob", best_logprob, Role::kOut);
  }
};

Status sample(OpContext& ctx, const SampleArgs& args);
extern const Op<SampleArgs> kSample;

}  // namespace lathe
