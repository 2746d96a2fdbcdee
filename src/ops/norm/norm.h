#pragma once

#include "ops/op.h"

// Row norms (model.md 2), fp32 inside:
//   kRms    y = w·round(x·rsqrt(mean(x²) + eps))     round: to y's dtype, before the weight, as the reference does
//   kLayer  y = w·(x - mean)·rsqrt(var + eps) + b    one rounding
//   gelu    y = gelu(that), exact (erf) form
// Tolerance: 1e-6 with f32 y, 5e-3 with bf16 y. y may be x.
namespace lathe {

enum class NormKind { kRms, kLayer };

struct NormArgs {
  NormKind kind = NormKind::kRms;
  Rows x;                     // [rows, width], f32 or bf16
  Array<const float> weight;  // [width]
  Array<const float> bias;    // [width], only kLayer
  Rows y;                     // [rows, width], f32 or bf16
  float eps = 1e-5f;
  bool gelu = false;

  template <class V>
  void visit(V&& v) {
    v("x", x, Role::kIn), v("weight", weight, Role::kIn), v("bias", bias, Role::kIn), v("y", y, Role::kOut);
  }
};

Status norm(OpContext& ctx, const NormArgs& args);
extern const Op<NormArgs> kNorm;

}  // namespace lathe
