#pragma once

#include "ops/kda_prefill/kda_layer.h"

// One decode step of Kimi delta attention for every row of a batch: from raw projections to what o_proj reads.
// Formulas: ops/kda_prefill/kda_layer.h. Row r is position past[r] of the sequence in slot[r]; state and ring are
// updated in place. slot -1 marks padding: y becomes zero, no memory is touched. No two rows share a slot.
// Rows are independent: neither neighbours nor padding may change a bit of a row's result.
// Tolerance of y and state: 1e-5 with f32 rows, 5e-3 with bf16.
namespace lathe {

struct KdaDecodeArgs {
  KdaRows in;
  KdaLayer layer;
  Array<const int32_t> past;  // [rows]
  Array<const int32_t> slot;  // [rows]
  KdaMemory memory;
  Rows y;  // [rows, heads·V], dtype of the rows

  template <class V>
  void visit(V&& f) {
    in.visit(f), layer.visit(f), f("past", past, Role::kIn), f("slot", slot, Role::kIn), memory.visit(f);
    f("y", y, Role::kOut);
  }
};

Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
extern const Op<KdaDecodeArgs> kKdaDecode;

}  // namespace lathe
