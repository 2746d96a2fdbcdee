#pragma once

#include "ops/op.h"

// The boundary between two sub-layers under manifold-constrained hyper-connections (model.md 3): "post" of the site
// that ends, "pre" of the site that begins, and its RMSNorm. S = copies, n = 2S + S².
//
//   X'[s] = post[s]·y + sum_j comb[j][s]·X[j]                 rounded once to the streams' dtype; without y: X' = X
//   f = flatten(X')    m = (f·fnᵀ)·rsqrt(mean(f²) + norm_eps)        fp32, [n]
//   pre' = sigmoid(m[0:S]·scale[0] + base[0:S]) + hc_eps     post' = 2·sigmoid(m[S:2S]·scale[1] + base[S:2S])
//   C = softmax over rows of (m[2S:]·scale[2] + base[2S:]) + hc_eps;  C /= column sums + hc_eps;
//   then sinkhorn_iters - 1 times: C /= row sums + hc_eps, C /= column sums + hc_eps;   comb' = C
//   u = norm_weight·v·rsqrt(mean(v²) + norm_eps),   v = sum_s pre'[s]·X'[s]                      rounded once
//
// The reference rounds v and the normalised row, too. Without those two, bf16 logits of a small model lie 10 % nearer
// to the fp32 ones (0.153 against 0.171, mean of 24 sequences of tiny_bf16). comb[j][s] sends old stream j to new
// stream s. fp32 inside; post and comb are used as fp32. Tolerance: 3e-6 with f32 rows (post, comb: 1e-5), 5e-3 with
// bf16. streams_out may be streams.
namespace lathe {

struct HcBoundaryArgs {
  Rows streams;                    // X, [rows, S·hidden], f32 or bf16
  Rows y;                          // [rows, hidden], or empty: the first site, X' = X
  Array<const float> post;         // [rows·S], of the site that ends
  Array<const float> comb;         // [rows·S·S]
  Weight fn;                       // [n, S·hidden], f32 or bf16
  Array<const float> base;         // [n]
  Array<const float> scale;        // [3]
  Array<const float> norm_weight;  // [hidden]
  Rows streams_out;                // X'
  Array<float> post_out;           // [rows·S], of the site that begins
  Array<float> comb_out;           // [rows·S·S]
  Rows u;                          // [rows, hidden], f32 or bf16
  int copies = 4, sinkhorn_iters = 20;
  float hc_eps = 1e-6f, norm_eps = 1e-5f;

  template <class V>
  void visit(V&& v) {
    v("streams", streams, Role::kIn), v("y", y, Role::kIn), v("post", post, Role::kIn), v("comb", comb, Role::kIn);
    v("fn", fn, Role::kIn), v("base", base, Role::kIn), v("scale", scale, Role::kIn);
    v("norm_weight", norm_weight, Role::kIn), v("streams_out", streams_out, Role::kOut);
    v("post_out", post_out, Role::kOut), v("comb_out", comb_out, Role::kOut), v("u", u, Role::kOut);
  }
};

Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
extern const Op<HcBoundaryArgs> kHcBoundary;

}  // namespace lathe
