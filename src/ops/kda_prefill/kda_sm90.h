#pragma once

#include <cstdint>

struct __nv_bfloat16;

// A KDA call as the kernels for sm_90a take it: device addresses, with strides in elements. bf16 rows, fp32 state,
// K = V = 128, a convolution of width 4. Meaning of all fields: kda_layer.h.
namespace lathe::sm90 {

constexpr int kKdaSize = 128;  // K and V
constexpr int kKdaWidth = 4;

struct KdaCall {
  const __nv_bfloat16 *qkv, *forget, *beta, *gate;
  int64_t qkv_stride, forget_stride, beta_stride, gate_stride;
  __nv_bfloat16* y;
  int64_t y_stride;
  const float *conv_weight, *a_log, *dt_bias, *norm_weight;
  float* state;         // [slots, heads, V, K]
  __nv_bfloat16* conv;  // [slots, ring, channels]
  int heads, ring;
  float bound, norm_eps;
};

}  // namespace lathe::sm90
