#include <algorithm>

#include "ops/cuda_kernel.cuh"
#include "ops/kda_prefill/kda_prefill_sm90.cuh"
#include "ops/kda_prefill/kda_sm90_call.cuh"
#include "ops/kda_prefill/variants.h"

namespace lathe::cuda {

bool kda_prefill_chunked_applies(const KdaPrefillArgs& a) {
  return sm90::fits(a.in, a.layer, a.memory, a.y) && sm90::has_narrow_gate(a.layer) &&
         a.memory.state.dtype == DType::kF32;
}

Status kda_prefill_chunked(OpContext& ctx, const KdaPrefillArgs& a) {
  const int sequences = static_cast<int>(a.runs.sequences());
  const sm90::KdaRuns runs{a.runs.start.data,
                           a.runs.past.data,
                           a.slot.data,
                           sequences,
                           a.in.qkv.rows,
                           a.checkpoint_row.data,
                           a.checkpoint_slot.data,
                           static_cast<int>(a.checkpoint_row.count)};
  ArenaScope scope(*ctx.scratch);
  const int64_t left = ctx.scratch->capacity_bytes() - ctx.scratch->mark() - 64;
  const int64_t bytes = std::min(left, sm90::kda_prefill_workspace(a.in.qkv.rows, sequences, a.layer.heads));
  const cudaError_t e = sm90::launch_kda_prefill(sm90::kda_call(a.in, a.layer, a.memory, a.y), runs,
                                                 ctx.scratch->take(bytes), bytes, stream_of(ctx));
  return e == cudaSuccess ? Status::ok() : internal("kda_prefill: {}", cudaGetErrorString(e));
}

}  // namespace lathe::cuda
