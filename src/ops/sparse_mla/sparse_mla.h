#pragma once

#include "ops/op.h"

// Multi-head latent attention over chosen tokens, without positions (model.md 6, kernels.md K9). New latents are
// written to their pages, then each query row attends over its set J.
//
//   c = latent_norm·round(latent·rsqrt(mean(latent²) + norm_eps))              per new row, kept in the pages' dtype
//   expanded:  k_h = Wk_h·c, v_h = Wv_h·c    s_j = q_h·k_h[j]·qk^-½    p = softmax_J(s)    o_h = sum_j p_j·v_h[j]
//   absorbed:  q~_h = Wk_hᵀ·q_h    s_j = q~_h·c_j·qk^-½    z_h = sum_j p_j·c_j    o_h = Wv_h·z_h        (identical
//   algebra)
//
// kv_b: head after head, qk key rows, then v value rows. fp32 inside, softmax in fp32, o rounded once.
// An empty set gives o = 0. Order of summation depends on the row's set alone, never on other sequences; but a default
// variant may take the form by how many rows with dense sets (all of the past) the sequence itself brings: 16 or more
// are a prompt, for which `expanded` is less work. `absorbed` and `expanded` by name depend on the set alone.
// Tolerance: 5e-6 with f32 rows and pages, 5e-3 with bf16.
namespace lathe {

struct SparseMlaArgs {
  Rows latent;                     // [new rows, latent_dim], before the norm; f32 or bf16
  Array<const float> latent_norm;  // [latent_dim]
  Ragged fresh;                    // new rows and their first positions, by sequence
  Rows query;                      // [rows, heads·qk]
  Ragged queries;
  Weight kv_b;                 // [heads·(qk + v), latent_dim], f32, bf16
  Array<const int32_t> slot;   // [sequences]; -1: padding, o = 0
  Array<const int32_t> table;  // [sequences, table_stride]: page of position p is table[p / page_tokens]
  int64_t table_stride = 0;
  Pool pages;                           // [pages, page_tokens·latent_dim], f32 or bf16
  Array<const int32_t> selected;        // [rows·selected_width], ascending positions, then -1
  Array<const int32_t> selected_count;  // [rows]
  int64_t selected_width = 0;
  Rows out;  // [rows, heads·v]
  int heads = 0, qk = 0, v = 0, latent_dim = 0, page_tokens = 0;
  float norm_eps = 1e-5f;

  template <class V>
  void visit(V&& f) {
    f("latent", latent, Role::kIn), f("latent_norm", latent_norm, Role::kIn), f("fresh", fresh, Role::kIn);
    f("query", query, Role::kIn), f("queries", queries, Role::kIn), f("kv_b", kv_b, Role::kIn);
    f("slot", slot, Role::kIn), f("table", table, Role::kIn), f("pages", pages, Role::kUpdate);
    f("selected", selected, Role::kIn), f("selected_count", selected_count, Role::kIn), f("out", out, Role::kOut);
  }
};

Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
extern const Op<SparseMlaArgs> kSparseMla;

}  // namespace lathe
