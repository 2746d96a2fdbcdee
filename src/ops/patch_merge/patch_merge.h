#pragma once

#include "ops/op.h"

// Gathers the `members` patches of each merge block, as a strided convolution's weight [out, width, 2, 2] wants them:
//   out[b][c·members + m] = x[b·members + m][c]
// A copy: equal bits. The product with the weight is an ordinary linear.
namespace lathe {

struct PatchMergeArgs {
  Rows x;    // [blocks·members, width], f32 or bf16
  Rows out;  // [blocks, width·members], same dtype
  int members = 4;

  template <class V>
  void visit(V&& f) {
    f("x", x, Role::kIn), f("out", out, Role::kOut);
  }
};

Status patch_merge(OpContext& ctx, const PatchMergeArgs& args);
extern const Op<PatchMergeArgs> kPatchMerge;

}  // namespace lathe
