#pragma once

#include "ops/op.h"

// Logits of chosen rows: logits[i] = hidden[row[i]]·wᵀ, fp32 sums, rounded to hidden's dtype as the reference does,
// kept as f32. w may be a slice of the vocabulary. A row's bits depend on that row alone. Tolerance: 3e-6 with f32,
// 5e-3 bf16.
namespace lathe {

struct LmHeadArgs {
  Rows hidden;               // [rows, hidden], f32 or bf16
  Array<const int32_t> row;  // [n]
  Weight w;                  // [vocab, hidden], as in linear
  Rows logits;               // [n, vocab], f32

  template <class V>
  void visit(V&& f) {
    f("hidden", hidden, Role::kIn), f("row", row, Role::kIn), f("w", w, Role::kIn), f("logits", logits, Role::kOut);
  }
};

Status lm_head(OpContext& ctx, const LmHeadArgs& args);
extern const Op<LmHeadArgs> kLmHead;

}  // namespace lathe
