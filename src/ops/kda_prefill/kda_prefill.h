#pragma once

#include "ops/kda_prefill/kda_layer.h"

// Kimi delta attention over runs of tokens: from raw projections to what o_proj reads. Formulas: kda_layer.h.
// Sequence i's rows continue its slot from position past[i]; the slot's state and convolution ring are updated in
// place. Slot -1 marks a padded sequence: its rows of y become zero, no memory is touched. An empty run changes
// nothing. Variants may cut a run into chunks (model.md 5.4); `sequential` goes token by token, bit-equal to
// kda_decode. Only differences of the running log gate that are <= 0, or lie within a bounded block, may be
// exponentiated. Tolerance of y and state: 1e-5 with f32 rows against the fp64 oracle, 5e-3 with bf16. Rows of
// different sequences are independent, and a run's result depends on that run alone.
namespace lathe {

struct KdaPrefillArgs {
  KdaRows in;
  KdaLayer layer;
  Ragged runs;                // rows and first positions of the sequences
  Array<const int32_t> slot;  // [sequences]
  KdaMemory memory;
  // State checkpoints: after batch row checkpoint_row[j] the sequence's state and ring are also written to
  // checkpoint_slot[j]. Ascending; or empty.
  Array<const int32_t> checkpoint_row, checkpoint_slot;
  Rows y;  // [rows, heads·V], dtype of the rows

  template <class V>
  void visit(V&& f) {
    in.visit(f), layer.visit(f), f("runs", runs, Role::kIn), f("slot", slot, Role::kIn), memory.visit(f);
    f("checkpoint_row", checkpoint_row, Role::kIn), f("checkpoint_slot", checkpoint_slot, Role::kIn);
    f("y", y, Role::kOut);
  }
};

Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& args);
extern const Op<KdaPrefillArgs> kKdaPrefill;

}  // namespace lathe
