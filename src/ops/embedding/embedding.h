#pragma once

#include "ops/op.h"

// Token rows of the residual streams: out[r] = `copies` equal copies of
//   zero                         where token[r] == -1 (padding)
//   features[feature[r]]         where feature[r] >= 0 (picture and video positions)
//   table[token[r]]              otherwise
// Values are converted to out's dtype (f32 or bf16); exact where the dtypes agree. Tolerance: none, equal bits.
namespace lathe {

struct EmbeddingArgs {
  Array<const int32_t> token;    // [rows]
  Array<const int32_t> feature;  // [rows], or empty: no features
  Weight table;                  // [vocab, hidden], f32, bf16 or f16
  Rows features;                 // [n, hidden], or empty
  Rows out;                      // [rows, copies·hidden]
  int copies = 1;

  template <class V>
  void visit(V&& v) {
    v("token", token, Role::kIn), v("feature", feature, Role::kIn), v("table", table, Role::kIn);
    v("features", features, Role::kIn), v("out", out, Role::kOut);
  }
};

Status embedding(OpContext& ctx, const EmbeddingArgs& args);
extern const Op<EmbeddingArgs> kEmbedding;

}  // namespace lathe
