#pragma once

#include "ops/kda_prefill/kda_sm90.h"
#include "ops/sm90.cuh"

// The elementwise steps of KDA, one source for all kernels: the convolution, SiLU, the log gate and the gated norm.
namespace lathe::sm90 {

constexpr float kLog2E = 1.4426950408889634f;

__device__ inline float sigmoid(float x) { return reciprocal_fast(1 + exp2_fast(-kLog2E * x)); }
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float round_bf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// Base-2 logarithm of a channel's decay. rate = exp(a_log).
__device__ inline float log2_gate_bounded(float f, float dt_bias, float rate, float bound) {
  return bound * kLog2E * sigmoid(rate * (f + dt_bias));
}
__device__ inline float log2_gate(float f, float dt_bias, float rate, float bound) {
  if (bound < 0) return log2_gate_bounded(f, dt_bias, rate, bound);
  const float x = f + dt_bias;
  return -kLog2E * rate * (x > 20 ? x : log1pf(__expf(x)));
}

__device__ inline int64_t channels_of(const KdaCall& call) { return int64_t{3 * kKdaSize} * call.heads; }

// The stored inputs of a channel: the ring's value for `back` rows before `position`, 0 before the sequence began.
__device__ inline float stored_input(const KdaCall& call, int64_t slot, int position, int back, int64_t channel) {
  if (back > position) return 0;
  const int64_t row = slot * call.ring + (position - back) % call.ring;
  return __bfloat162float(call.conv[row * channels_of(call) + channel]);
}

// w·(x3, x2, x1, x0), x0 the current input, through SiLU, rounded as the rows are.
__device__ inline float convolve(float4 w, float x3, float x2, float x1, float x0) {
  return round_bf16(silu(fmaf(w.x, x3, fmaf(w.y, x2, fmaf(w.z, x1, w.w * x0)))));
}

__device__ inline float4 conv_weights(const KdaCall& call, int64_t channel) {
  return *reinterpret_cast<const float4*>(call.conv_weight + channel * kKdaWidth);
}

}  // namespace lathe::sm90
