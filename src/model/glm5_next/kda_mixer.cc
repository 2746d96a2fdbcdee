#include "model/glm5_next/kda_mixer.h"

#include "model/collectives.h"
#include "ops/kda_decode/kda_decode.h"
#include "ops/kda_prefill/kda_prefill.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/kda_scan/kda_scan.h"
#include "ops/linear/linear.h"

namespace lathe::glm5_next {

namespace {

KdaRows rows_of(const KdaRows& all, const PhaseRows& phase) {
  return {all.qkv.slice(phase.first_row, phase.rows), all.forget.slice(phase.first_row, phase.rows),
          all.beta.slice(phase.first_row, phase.rows), all.gate.slice(phase.first_row, phase.rows)};
}

Status prefill(const Step& step, OpContext& op, const KdaLayer& layer, int index, const KdaRows& in, const Rows& y) {
  const PhaseRows& phase = step.batch.prefill;
  if (step.batch.cut) {
    KdaScanArgs args{.in = rows_of(in, phase),
                     .layer = layer,
                     .runs = phase.runs,
                     .before = phase.before,
                     .slot = phase.slot,
                     .memory = step.memory.kda(index),
                     .segments = 1,
                     .y = y.slice(phase.first_row, phase.rows)};
    return kda_scan(op, args);
  }
  if (phase.rows == 0) return Status::ok();
  KdaPrefillArgs args{.in = rows_of(in, phase),
                      .layer = layer,
                      .runs = phase.runs,
                      .slot = phase.slot,
                      .memory = step.memory.kda(index),
                      .checkpoint_row = {},
                      .checkpoint_slot = {},
                      .y = y.slice(phase.first_row, phase.rows)};
  return kda_prefill(op, args);
}

Status decode(const Step& step, OpContext& op, const KdaLayer& layer, int index, const KdaRows& in, const Rows& y) {
  const PhaseRows& phase = step.batch.decode;
  if (phase.rows == 0) return Status::ok();
  KdaDecodeArgs args{.in = rows_of(in, phase),
                     .layer = layer,
                     .past = phase.runs.past,
                     .slot = phase.slot,
                     .memory = step.memory.kda(index),
                     .y = y.slice(phase.first_row, phase.rows)};
  return kda_decode(op, args);
}

Status replay(const Step& step, OpContext& op, const KdaLayer& layer, int index, const KdaRows& in, const Rows& y) {
  const PhaseRows& phase = step.batch.replay;
  if (phase.rows == 0) return Status::ok();
  KdaReplayArgs args{.in = rows_of(in, phase),
                     .layer = layer,
                     .runs = phase.runs,
                     .slot = phase.slot,
                     .cursor = step.batch.cursor,
                     .memory = step.memory.kda(index),
                     .ring_key = step.memory.replay_keys(index),
                     .ring_d = step.memory.replay_d(index),
                     .ring_gate = step.memory.replay_gates(index),
                     .length = step.memory.shape().replay_length,
                     .flush = false,
                     .y = y.slice(phase.first_row, phase.rows)};
  return kda_replay(op, args);
}

}  // namespace

Status kda_mixer(const Step& step, OpContext& op, const KdaWeights& w, const Partition& partition, int kda_layer,
                 const Rows& u, const Rows& y) {
  ArenaScope scope(step.activations);
  const int64_t n = u.rows, k_width = int64_t{w.layer.heads} * w.layer.k, v_width = int64_t{w.layer.heads} * w.layer.v;
  auto fresh = [&](int64_t width) { return step.activations.rows(n, width, u.dtype); };
  const KdaRows in{fresh(w.layer.channels()), fresh(k_width), fresh(w.layer.heads), fresh(v_width)};
  const Rows forget_low = fresh(w.f_a.out), gate_low = fresh(w.g_a.out), heads_out = fresh(v_width);
  LATHE_RETURN_IF_ERROR(linear(op, {u,
                                    {{w.q, {}, in.qkv.columns(0, k_width)},
                                     {w.k, {}, in.qkv.columns(k_width, k_width)},
                                     {w.v, {}, in.qkv.columns(2 * k_width, v_width)},
                                     {w.f_a, {}, forget_low},
                                     {w.g_a, {}, gate_low},
                                     {w.b, {}, in.beta}}}));
  LATHE_RETURN_IF_ERROR(linear(op, {forget_low, {{w.f_b, {}, in.forget}}}));
  LATHE_RETURN_IF_ERROR(linear(op, {gate_low, {{w.g_b, {}, in.gate}}}));
  LATHE_RETURN_IF_ERROR(prefill(step, op, w.layer, kda_layer, in, heads_out));
  LATHE_RETURN_IF_ERROR(decode(step, op, w.layer, kda_layer, in, heads_out));
  LATHE_RETURN_IF_ERROR(replay(step, op, w.layer, kda_layer, in, heads_out));
  if (!partition.is(Parallel::kTensor)) return linear(op, {heads_out, {{w.o, {}, y}}});
  const Rows partial = step.activations.rows(n, y.width, DType::kF32);
  LATHE_RETURN_IF_ERROR(linear(op, {heads_out, {{w.o, {}, partial}}}));
  return sum_rows(op, partial, y);
}

}  // namespace lathe::glm5_next
