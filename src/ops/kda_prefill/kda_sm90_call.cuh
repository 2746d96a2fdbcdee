#pragma once

#include <cuda_bf16.h>

#include "ops/kda_prefill/kda_layer.h"
#include "ops/kda_prefill/kda_sm90.h"

// From the operators' arguments to what the kernels for sm_90a take.
namespace lathe::sm90 {

inline bool is_vector_aligned(const Rows& r) {
  return reinterpret_cast<uintptr_t>(r.data) % 16 == 0 && r.stride * dtype_bytes(r.dtype) % 16 == 0;
}

// Sizes and layouts that these kernels can take. The state's dtype is the variant's business.
inline bool fits(const KdaRows& in, const KdaLayer& layer, const KdaMemory& memory, const Rows& y) {
  return in.qkv.dtype == DType::kBF16 && layer.k == kKdaSize && layer.v == kKdaSize && layer.width == kKdaWidth &&
         memory.ring >= kKdaWidth - 1 && is_vector_aligned(in.qkv) && is_vector_aligned(in.forget) &&
         is_vector_aligned(in.gate) && is_vector_aligned(y);
}

// Keys divided by the decay of 16 tokens stay within fp32.
inline bool has_narrow_gate(const KdaLayer& layer) { return layer.bound < 0 && layer.bound >= -5; }

inline KdaCall kda_call(const KdaRows& in, const KdaLayer& layer, const KdaMemory& memory, const Rows& y) {
  auto b16 = [](const Rows& r) { return static_cast<__nv_bfloat16*>(r.data); };
  return {b16(in.qkv),
          b16(in.forget),
          b16(in.beta),
          b16(in.gate),
          in.qkv.stride,
          in.forget.stride,
          in.beta.stride,
          in.gate.stride,
          b16(y),
          y.stride,
          layer.conv_weight.data,
          layer.a_log.data,
          layer.dt_bias.data,
          layer.norm_weight.data,
          static_cast<float*>(memory.state.data),
          static_cast<__nv_bfloat16*>(memory.conv.data),
          layer.heads,
          memory.ring,
          layer.bound,
          layer.norm_eps};
}

}  // namespace lathe::sm90
