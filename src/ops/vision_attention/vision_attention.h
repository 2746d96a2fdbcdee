#pragma once

#include "ops/op.h"

// Full attention of patches inside their segment, with head norms and axial rotation (model.md 11, step 3).
//   q, k = rotate(RMSNorm(q), angles), rotate(RMSNorm(k), angles)     norm rounded as in ops/norm, rotation fp32,
//   rounded angles: with f_i = theta^(-2i/(D/2)), i < D/4, of the patch's (row, col): [row·f, col·f, row·f, col·f]
//   rotate(x) = x·cos + rotate_half(x)·sin, rotate_half = (-second half, first half)
//   out = softmax(q·kᵀ·D^-½)·v, fp32, over the patches of the same segment
// Tolerance: 5e-6 with f32 rows, 5e-3 with bf16.
namespace lathe {

struct VisionAttentionArgs {
  Rows qkv;                            // [patches, 3·heads·D]: all q, all k, all v; f32 or bf16
  Array<const float> q_norm, k_norm;   // [D]
  Array<const int32_t> row, col;       // [patches], in the patch grid of its frame; 0 to 65535
  Array<const int32_t> segment_start;  // [segments + 1], from 0 to patches
  Rows out;                            // [patches, heads·D]
  int heads = 0, dim = 0;
  float theta = 10000, norm_eps = 1e-5f;

  template <class V>
  void visit(V&& f) {
    f("qkv", qkv, Role::kIn), f("q_norm", q_norm, Role::kIn), f("k_norm", k_norm, Role::kIn), f("row", row, Role::kIn);
    f("col", col, Role::kIn), f("segment_start", segment_start, Role::kIn), f("out", out, Role::kOut);
  }
};

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
extern const Op<VisionAttentionArgs> kVisionAttention;

}  // namespace lathe
