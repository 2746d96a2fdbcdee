#include "ops/kda_replay/kda_replay.h"

#include "ops/kda_replay/variants.h"

namespace lathe {

namespace {

Status check_ring(const char* name, const Pool& pool, int64_t items, int64_t values) {
  if (pool.items != items || pool.item_size != values)
    return invalid("{} must be [{}, {}]; got [{}, {}]", name, items, values, pool.items, pool.item_size);
  if (pool.dtype != DType::kF32 && pool.dtype != DType::kBF16)
    return invalid("{} must be f32 or bf16, not {}", name, dtype_name(pool.dtype));
  return Status::ok();
}

Status check(const KdaReplayArgs& args) {
  const KdaLayer& layer = args.layer;
  LATHE_RETURN_IF_ERROR(check_kda(args.in, layer, args.memory, args.y, args.in.qkv.rows));
  const int64_t sequences = args.slot.count, slots = args.memory.state.items,
                records = int64_t{layer.heads} * args.length;
  if (args.length < 1) return invalid("a ring of {} records", args.length);
  if ((args.length - 1) * -layer.bound >= 80)
    return invalid("{} records of a gate bounded by {} leave fp32: (length - 1)·|bound| must stay below 80",
                   args.length, layer.bound);
  if (args.cursor.count != slots) return invalid("{} slots, but {} cursors", slots, args.cursor.count);
  LATHE_RETURN_IF_ERROR(check_ring("ring_key", args.ring_key, slots, records * layer.k));
  LATHE_RETURN_IF_ERROR(check_ring("ring_d", args.ring_d, slots, records * layer.v));
  LATHE_RETURN_IF_ERROR(check_ring("ring_gate", args.ring_gate, slots, records * layer.k));
  if (args.ring_gate.dtype != DType::kF32) return invalid("ring_gate must be f32");
  if (args.flush) return args.in.qkv.rows == 0 ? Status::ok() : invalid("flush takes no rows");
  if (args.runs.past.count != sequences || args.runs.start.count != sequences + 1)
    return invalid("{} sequences need {} starts; got {}", sequences, sequences + 1, args.runs.start.count);
  return Status::ok();
}

constexpr Variant<KdaReplayArgs> kVariants[] = {
    {"avx512", avx512::applies, avx512::kda_replay},
    {"avx2", avx2::applies, avx2::kda_replay},
    {"portable", portable::applies, portable::kda_replay},
    {"reference", always, reference::kda_replay},
#ifdef LATHE_CUDA  // the faster one by its name, until verify has judged it through this door on a card
    {"cuda", cuda::kda_replay_applies, cuda::kda_replay, true, DeviceKind::kCuda},
    {"predecayed", cuda::kda_replay_predecayed_applies, cuda::kda_replay_predecayed, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<KdaReplayArgs> kKdaReplay{"kda_replay", kVariants, check};

Status kda_replay(OpContext& ctx, const KdaReplayArgs& args) { return run(ctx, kKdaReplay, args); }

}  // namespace lathe
