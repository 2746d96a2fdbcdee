#include "ops/cuda_kernel.cuh"
#include "ops/kda_prefill/kda_sm90_call.cuh"
#include "ops/kda_replay/kda_replay_sm90.cuh"
#include "ops/kda_replay/variants.h"

namespace lathe::cuda {

bool kda_replay_predecayed_applies(const KdaReplayArgs& a) {
  return (a.flush || sm90::fits(a.in, a.layer, a.memory, a.y)) && a.layer.k == sm90::kKdaSize &&
         a.layer.v == sm90::kKdaSize && a.in.qkv.dtype == DType::kBF16 && sm90::has_narrow_gate(a.layer) &&
         a.length == sm90::kReplayLength && a.memory.state.dtype == DType::kF32 && a.ring_key.dtype == DType::kBF16 &&
         a.ring_d.dtype == DType::kBF16;
}

Status kda_replay_predecayed(OpContext& ctx, const KdaReplayArgs& a) {
  const sm90::KdaReplay replay{a.runs.start.data,
                               a.runs.past.data,
                               a.slot.data,
                               a.cursor.data,
                               static_cast<int>(a.slot.count),
                               static_cast<__nv_bfloat16*>(a.ring_key.data),
                               static_cast<__nv_bfloat16*>(a.ring_d.data),
                               a.ring_gate.f32(0),
                               a.flush};
  const cudaError_t e = sm90::launch_kda_replay(sm90::kda_call(a.in, a.layer, a.memory, a.y), replay,
                                                a.in.qkv.rows <= a.slot.count, stream_of(ctx));
  return e == cudaSuccess ? Status::ok() : internal("kda_replay: {}", cudaGetErrorString(e));
}

}  // namespace lathe::cuda
