#pragma once

#include "ops/cuda_kernel.cuh"

// Products of the same rows, as linear, mlp and lm_head ask for them, and how a row is quantised for W8A8 weights.
namespace lathe::cuda {

struct SharedProduct {
  Weight w;
  Array<const float> bias;
  Rows y;
};
struct SharedRows {
  Rows x;
  const int32_t* list = nullptr;  // which rows of x; none: all
  int64_t rows = 0;               // of the results
  SharedProduct product[8];
  int products = 0;
  bool round_to_bf16 = false;  // results, before they are stored as f32
  bool sharp = false;          // f32 results are judged as such: e4m3 by e4m3 isn't left to tensor cores
};

// few_rows_only: for any number of rows by the kernel for few, in whose order a row doesn't depend on their number.
Status multiply_shared_rows(OpContext& ctx, const SharedRows& s, bool few_rows_only);

// ---- quantising

struct Step {
  float scale, inverse;
};

__device__ inline Step quantising_step(float largest, bool finite, DType dtype) {
  const float top = dtype == DType::kI8 ? 127 : 448;
  if (!finite) return {__int_as_float(0x7fc00000), 0};
  if (largest < 1e-30f) return {0, 0};
  return {largest / top, top / largest};
}

__device__ inline void store_step(const Rows& to, int64_t row, int64_t i, float value, const Step& step) {
  const float steps = value * step.inverse;
  if (to.dtype == DType::kI8)
    static_cast<int8_t*>(to.data)[row * to.stride + i] = static_cast<int8_t>(__float2int_rn(steps));
  else
    static_cast<e4m3*>(to.data)[row * to.stride + i] = to_e4m3(steps);
}

}  // namespace lathe::cuda
