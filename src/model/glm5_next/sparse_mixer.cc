#include "model/glm5_next/sparse_mixer.h"

#include "model/collectives.h"
#include "ops/index_select/index_select.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/sparse_mla/sparse_mla.h"

namespace lathe::glm5_next {

namespace {

// New rows that all ranks need: as they are, or gathered.
Result<Rows> fresh_rows(const Step& step, OpContext& op, const Rows& local) {
  if (!step.batch.cut) return local;
  const Rows all = step.activations.rows(step.batch.all_rows, local.width, local.dtype);
  LATHE_RETURN_IF_ERROR(gather_rows(op, step.batch, local, all));
  return all;
}

}  // namespace

Status sparse_mixer(const Step& step, OpContext& op, const TextConfig& c, const SparseWeights& w, int sparse_layer,
                    const Rows& u, const Selection& selection, const Rows& y) {
  ArenaScope scope(step.activations);
  const Batch& batch = step.batch;
  auto fresh = [&](int64_t width) { return step.activations.rows(u.rows, width, u.dtype); };
  const Rows q_low = fresh(c.q_rank), latent = fresh(c.latent), query = fresh(int64_t{c.heads} * c.qk);
  Rows key, gate, head_weight, index_query;
  if (w.index) {
    key = fresh(c.index_dim), gate = fresh(c.index_dim), index_query = fresh(int64_t{c.index_heads} * c.index_dim);
    // fp32: rounding these few numbers to bf16 would change the order of near ties.
    head_weight = step.activations.rows(u.rows, c.index_heads, DType::kF32);
    LATHE_RETURN_IF_ERROR(linear(op, {u,
                                      {{w.q_a, {}, q_low},
                                       {w.kv_a, {}, latent},
                                       {w.index->key, {}, key},
                                       {w.index->gate, {}, gate},
                                       {w.index->head, {}, head_weight}}}));
  } else {
    LATHE_RETURN_IF_ERROR(linear(op, {u, {{w.q_a, {}, q_low}, {w.kv_a, {}, latent}}}));
  }
  LATHE_RETURN_IF_ERROR(norm(op, {.x = q_low, .weight = w.q_norm, .bias = {}, .y = q_low, .eps = c.rms_eps}));
  if (w.index)
    LATHE_RETURN_IF_ERROR(linear(op, {q_low, {{w.q_b, {}, query}, {w.index->query, {}, index_query}}}));
  else
    LATHE_RETURN_IF_ERROR(linear(op, {q_low, {{w.q_b, {}, query}}}));

  if (w.index) {
    LATHE_ASSIGN(const Rows all_keys, fresh_rows(step, op, key));
    LATHE_ASSIGN(const Rows all_gates, fresh_rows(step, op, gate));
    IndexSelectArgs args{.key = all_keys,
                         .gate = all_gates,
                         .key_norm_weight = w.index->key_norm_weight,
                         .key_norm_bias = w.index->key_norm_bias,
                         .ape = w.index->ape,
                         .fresh = batch.fresh,
                         .query = index_query,
                         .head_weight = head_weight,
                         .queries = batch.runs,
                         .slot = batch.slot,
                         .table = batch.table,
                         .table_stride = batch.table_stride,
                         .pages = step.memory.index_pages(sparse_layer),
                         .open = step.memory.open_rows(sparse_layer),
                         .ring = step.memory.shape().open_ring(),
                         .selected = selection.selected,
                         .selected_count = selection.count,
                         .heads = c.index_heads,
                         .dim = c.index_dim,
                         .kpool = c.kpool,
                         .top_k = c.index_top_k,
                         .page_tokens = step.memory.shape().page_tokens,
                         .tail = c.always_tail};
    LATHE_RETURN_IF_ERROR(index_select(op, args));
    if (step.observer) step.observer->selection(op.address.layer, selection.selected, selection.count, selection.width);
  }
  LATHE_ASSIGN(const Rows all_latents, fresh_rows(step, op, latent));
  const Rows heads_out = fresh(int64_t{c.heads} * c.v);
  SparseMlaArgs args{.latent = all_latents,
                     .latent_norm = w.kv_norm,
                     .fresh = batch.fresh,
                     .query = query,
                     .queries = batch.runs,
                     .kv_b = w.kv_b,
                     .slot = batch.slot,
                     .table = batch.table,
                     .table_stride = batch.table_stride,
                     .pages = step.memory.latent_pages(sparse_layer),
                     .selected = selection.selected,
                     .selected_count = selection.count,
                     .selected_width = selection.width,
                     .out = heads_out,
                     .heads = c.heads,
                     .qk = c.qk,
                     .v = c.v,
                     .latent_dim = c.latent,
                     .page_tokens = step.memory.shape().page_tokens,
                     .norm_eps = c.rms_eps};
  LATHE_RETURN_IF_ERROR(sparse_mla(op, args));
  return linear(op, {heads_out, {{w.o, {}, y}}});
}

}  // namespace lathe::glm5_next
