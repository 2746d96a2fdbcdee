#pragma once

#include "ops/op.h"

// The next token of each row, from f32 logits. Ids >= vocab (padding of the matrix) are never taken. NaN logits count
// as -inf; a row without a finite logit gives -1.
//   temperature 0: the greatest logit, ties to the lower id. Otherwise p = softmax(logits/temperature), restricted to
//   the top_k greatest (0: all) and renormalised, then to the smallest set of greatest p whose sum >= top_p, then to
//   p >= min_p·max p; renormalised, drawn by inversion, ids in order of falling p (ties: lower id first).
// The draw depends on (seed, position, logits) alone: u = a hash of seed and position, in [0, 1).
namespace lathe {

struct SampleSettings {
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  uint64_t seed = 0;
};

struct SampleArgs {
  Rows logits;                           // [rows, >= vocab], f32
  Array<const SampleSettings> settings;  // [rows]
  Array<const int32_t> position;         // [rows]: of the token that is drawn
  Array<int32_t> token;                  // [rows]
  int vocab = 0;

  template <class V>
  void visit(V&& f) {
    f("logits", logits, Role::kIn), f("settings", settings, Role::kIn), f("position", position, Role::kIn);
    f("token", token, Role::kOut);
  }
};

Status sample(OpContext& ctx, const SampleArgs& args);
extern const Op<SampleArgs> kSample;

}  // namespace lathe
