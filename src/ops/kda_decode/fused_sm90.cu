#include "ops/cuda_kernel.cuh"
#include "ops/kda_decode/kda_decode_sm90.cuh"
#include "ops/kda_decode/variants.h"
#include "ops/kda_prefill/kda_sm90_call.cuh"

namespace lathe::cuda {

bool kda_decode_fused_applies(const KdaDecodeArgs& a) {
  return sm90::fits(a.in, a.layer, a.memory, a.y) &&
         (a.memory.state.dtype == DType::kF32 || a.memory.state.dtype == DType::kBF16);
}

Status kda_decode_fused(OpContext& ctx, const KdaDecodeArgs& a) {
  const auto state = a.memory.state.dtype == DType::kF32 ? sm90::KdaState::kF32 : sm90::KdaState::kBF16;
  const cudaError_t e = sm90::launch_kda_decode(sm90::kda_call(a.in, a.layer, a.memory, a.y), a.past.data, a.slot.data,
                                                static_cast<int>(a.in.qkv.rows), state, stream_of(ctx));
  return e == cudaSuccess ? Status::ok() : internal("kda_decode: {}", cudaGetErrorString(e));
}

}  // namespace lathe::cuda
