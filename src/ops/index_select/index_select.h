#pragma once

#include "ops/op.h"

// The indexer of a sparse layer (model.md 7, kernels.md K7, K8): pooled keys are written, then each query row's token
// set is chosen.
//
//   ik = LayerNorm(key)     ig = gate                                      per new row
//   pool p covers positions kpool·p ... kpool·p + kpool - 1; it gets a key once its last position is known:
//     alpha_j = softmax over its members j of (ig_j + ape_j), per channel;  pk = sum_j alpha_j·ik_j      fp32, one
//     rounding
//   score(t, p) = sum_h w_h·relu(iq_h·pk)    w = head_weight·heads^-½, the dot scaled by dim^-½;  fp32
//   candidates of position t: pools with kpool·p + kpool - 1 <= t;  chosen: the top_k/kpool of greatest score, ties and
//     NaN to the lower pool (NaN counts as -inf); all of them, unscored, where they are no more than that
//   tail: with n = t + 1, positions n - n % kpool ... t, if `tail`
//
// selected[r]: the positions in ascending order, then -1; selected_count[r] how many. May be 0.
// Rounded to the pages' dtype: ik, ig (kept for the open pool), pk. fp32 inside. A row's set depends on that row alone.
// Judged by the chosen sets; scores within 1e-6 (f32) or 1e-2 (bf16) of the last chosen may fall either way.
namespace lathe {

struct IndexSelectArgs {
  // New rows: what is written.
  Rows key;                                           // [new rows, dim], before the LayerNorm; f32 or bf16
  Rows gate;                                          // [new rows, dim]
  Array<const float> key_norm_weight, key_norm_bias;  // [dim]
  Array<const float> ape;                             // [kpool·dim]
  Ragged fresh;                                       // new rows and their first positions, by sequence
  // Query rows: usually the same rows; under context parallelism a part of them.
  Rows query;        // [rows, heads·dim]
  Rows head_weight;  // [rows, heads], f32 or bf16
  Ragged queries;
  // Memory.
  Array<const int32_t> slot;   // [sequences]; -1: padding, nothing is written and nothing selected
  Array<const int32_t> table;  // [sequences, table_stride]: page of position p is table[p / page_tokens]
  int64_t table_stride = 0;
  Pool pages;  // [pages, page_tokens/kpool·dim], pooled keys, f32 or bf16
  Pool open;   // [slots, ring·2·dim]: (ik | ig) of position p at row p mod ring, ring >= kpool
  int ring = 0;
  Array<int32_t> selected;        // [rows·width], width = top_k + kpool - 1
  Array<int32_t> selected_count;  // [rows]
  int heads = 0, dim = 0, kpool = 0, top_k = 0, page_tokens = 0;
  bool tail = true;
  float key_norm_eps = 1e-6f;

  LATHE_HOST_DEVICE int width() const { return top_k + kpool - 1; }

  template <class V>
  void visit(V&& f) {
    f("key", key, Role::kIn), f("gate", gate, Role::kIn), f("key_norm_weight", key_norm_weight, Role::kIn);
    f("key_norm_bias", key_norm_bias, Role::kIn), f("ape", ape, Role::kIn), f("fresh", fresh, Role::kIn);
    f("query", query, Role::kIn), f("head_weight", head_weight, Role::kIn), f("queries", queries, Role::kIn);
    f("slot", slot, Role::kIn), f("table", table, Role::kIn), f("pages", pages, Role::kUpdate);
    f("open", open, Role::kUpdate), f("selected", selected, Role::kOut),
        f("selected_count", selected_count, Role::kOut);
  }
};

Status index_select(OpContext& ctx, const IndexSelectArgs& args);
extern const Op<IndexSelectArgs> kIndexSelect;

}  // namespace lathe
