#pragma once

#include "ops/kda_prefill/kda_layer.h"

// Context-parallel KDA prefill (kernels.md K6, model.md 5.5). A sequence's new tokens are cut into segments; segment
// effects S -> S·A + B are found apart, joined by an exclusive scan in segment order, and each segment then runs from
// its true initial state.
//
//   B: end state of the segment from zero.   A: carried in increment form, the recurrence run from S = I with values
//   zero. Empty segments are the identity.
//
// Without ctx.comm: the rows of each run are cut here into `segments` nearly equal pieces (the first ones longer).
// With ctx.comm: rank r holds segment r of every sequence (runs: this rank's rows; past: their first positions; empty
// runs allowed); convolution inputs that a segment needs from before it are exchanged, and afterwards every rank's slot
// holds every sequence's final state and ring, as if it had run the whole. `before[i]` is the sequence's position
// before this call (where the slots' memory stands).
// Variants: `increment` (fp32), `increment_tf32` (operands of products rounded to tf32), `product_tf32` (A as a product
// of token maps, tf32: shown to drift).
// Tolerance of y and state: 1e-5 with f32 rows (increment); increment_tf32 3e-4; 5e-3 with bf16.
namespace lathe {

struct KdaScanArgs {
  KdaRows in;
  KdaLayer layer;
  Ragged runs;                  // this rank's rows of each sequence
  Array<const int32_t> before;  // [sequences]
  Array<const int32_t> slot;    // [sequences]; -1: padding
  KdaMemory memory;
  int segments = 1;  // without ctx.comm
  Rows y;            // [rows, heads·V]

  template <class V>
  void visit(V&& f) {
    in.visit(f), layer.visit(f), f("runs", runs, Role::kIn), f("before", before, Role::kIn), f("slot", slot, Role::kIn);
    memory.visit(f), f("y", y, Role::kOut);
  }
};

Status kda_scan(OpContext& ctx, const KdaScanArgs& args);
extern const Op<KdaScanArgs> kKdaScan;

}  // namespace lathe
