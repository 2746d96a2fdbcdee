#pragma once

#include "ops/mlp/mlp.h"
#include "ops/op.h"

// Mixture of experts (model.md 8), from normed rows to combined rows:
//   s = sigmoid(x·routerᵀ)                 fp32 sums and values, whatever x is
//   c = s + bias; with groups: the topk_group groups of greatest (sum of two largest c) keep their c
//   chosen = the top_k largest c, ties to the lower id, a NaN below all numbers;  w = s[chosen], / (sum + 1e-20) if
//   normalise, · routed_scale y = sum over chosen of w_e·mlp_e(x)  +  mlp_shared(x)       fp32 sum in order of expert
//   id, one rounding
//
// Expert-parallel: this rank holds experts [first_expert, first_expert + experts.count) of expert_count; if these are
// not all, and ctx.comm is set, the fp32 routed sums are added over ranks in rank order, then the shared expert
// everywhere. Rows are independent. Tolerance: 5e-6 with f32 y, 5e-3 with bf16 or W8A8 weights (as in mlp); chosen ids
// are exact against equal inputs.
namespace lathe {

struct MoeArgs {
  Rows x;                           // [rows, hidden], f32 or bf16
  Weight router;                    // [expert_count, hidden], f32 or bf16
  Array<const float> bias;          // [expert_count]
  Array<const MlpWeights> experts;  // host memory: this rank's experts
  Array<const MlpWeights> shared;   // host memory: none or one
  Rows y;                           // [rows, hidden]
  Array<int32_t> chosen;            // [rows·top_k], ascending ids; or empty: not wanted
  Array<float> chosen_weight;       // [rows·top_k], in the order of chosen
  int expert_count = 0, first_expert = 0, top_k = 0, groups = 1, top_groups = 1;
  bool normalise = true;
  float routed_scale = 1, limit = 0;

  template <class V>
  void visit(V&& v) {
    v("x", x, Role::kIn), v("router", router, Role::kIn), v("bias", bias, Role::kIn);
    v("experts", experts, Role::kIn), v("shared", shared, Role::kIn), v("y", y, Role::kOut);
    v("chosen", chosen, Role::kOut), v("chosen_weight", chosen_weight, Role::kOut);
  }
};

Status moe(OpContext& ctx, const MoeArgs& args);
extern const Op<MoeArgs> kMoe;

}  // namespace lathe
