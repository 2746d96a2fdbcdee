#pragma once

#include "ops/op.h"

// The end of the stack (model.md 1, 3): "post" of the last site, mean over the S streams, final RMSNorm.
//   X'[s] = post[s]·y + sum_j comb[j][s]·X[j], rounded;   h = w·v·rsqrt(mean(v²) + eps),  v = mean_s X'[s], rounded
//   once
// Tolerance: 3e-6 with f32 rows, 5e-3 with bf16. streams_out may be streams.
namespace lathe {

struct HcHeadArgs {
  Rows streams;                    // X, [rows, S·hidden], f32 or bf16
  Rows y;                          // [rows, hidden]
  Array<const float> post;         // [rows·S]
  Array<const float> comb;         // [rows·S·S]
  Array<const float> norm_weight;  // [hidden]
  Rows streams_out;                // X', [rows, S·hidden]
  Rows h;                          // [rows, hidden]
  int copies = 4;
  float norm_eps = 1e-5f;

  template <class V>
  void visit(V&& v) {
    v("streams", streams, Role::kIn), v("y", y, Role::kIn), v("post", post, Role::kIn), v("comb", comb, Role::kIn);
    v("norm_weight", norm_weight, Role::kIn), v("streams_out", streams_out, Role::kOut), v("h", h, Role::kOut);
  }
};

Status hc_head(OpContext& ctx, const HcHeadArgs& args);
extern const Op<HcHeadArgs> kHcHead;

}  // namespace lathe
