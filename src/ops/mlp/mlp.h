#pragma once

#include "ops/op.h"

// Clamped SwiGLU (model.md 8): g = x·gateᵀ + b, u = x·upᵀ + b;  y = (silu(min(g, limit))·clamp(u, ±limit))·downᵀ + b.
// Serves the dense feed-forward, the shared expert and the vision tower. Weights as in linear; the middle is rounded to
// x's dtype (W8A8: quantised by row from fp32). Sums in fp32. Rows are independent. Tolerance: 5e-6 with f32 y, 5e-3
// with bf16 or with W8A8 weights, where the last bit of a middle value may move it to the neighbouring step.
namespace lathe {

struct MlpWeights {
  Weight gate, up;                                   // [inner, hidden]
  Weight down;                                       // [hidden, inner]
  Array<const float> gate_bias, up_bias, down_bias;  // or empty

  template <class V>
  void visit(V&& v) {
    v("gate", gate, Role::kIn), v("up", up, Role::kIn), v("down", down, Role::kIn);
    v("gate_bias", gate_bias, Role::kIn), v("up_bias", up_bias, Role::kIn), v("down_bias", down_bias, Role::kIn);
  }
};

struct MlpArgs {
  Rows x;  // [rows, hidden], f32 or bf16
  MlpWeights w;
  Rows y;           // [rows, out], f32 or bf16; not x
  float limit = 0;  // 0: no clamp

  template <class V>
  void visit(V&& v) {
    v("x", x, Role::kIn), w.visit(v), v("y", y, Role::kOut);
  }
};

Status mlp(OpContext& ctx, const MlpArgs& args);
extern const Op<MlpArgs> kMlp;

}  // namespace lathe
