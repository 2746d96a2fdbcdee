#pragma once

#include "ops/op.h"

// A plain residual: y = a + b, fp32, one rounding. y may be a or b. Tolerance: 1e-6 with f32, 5e-3 with bf16.
namespace lathe {

struct AddArgs {
  Rows a, b, y;  // [rows, width], f32 or bf16

  template <class V>
  void visit(V&& f) {
    f("a", a, Role::kIn), f("b", b, Role::kIn), f("y", y, Role::kOut);
  }
};

Status add(OpContext& ctx, const AddArgs& args);
extern const Op<AddArgs> kAdd;

}  // namespace lathe
