#pragma once

#include <cuda_runtime.h>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op.h"

// What every operator's CUDA file starts from: the stream, checked launches, values of views as floats, reductions over a
// warp and a block. No reduction uses atomics on floats: the same call gives the same bits.

namespace lathe::cuda {

inline cudaStream_t stream_of(const OpContext& ctx) { return static_cast<cudaStream_t>(ctx.device->stream().handle); }

// The error of the launches since the last call. Asynchronous ones show at the device's next synchronize().
inline Status launched(const char* what) {
  const cudaError_t e = cudaGetLastError();
  return e == cudaSuccess ? Status::ok() : internal("{}: {}", what, cudaGetErrorString(e));
}

// Lets a kernel have more dynamic shared memory than the 48 KB that need no asking.
template <class Kernel>
Status allow_shared(Kernel kernel, int64_t bytes) {
  if (bytes <= 48 << 10) return Status::ok();
  const cudaError_t e =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  return e == cudaSuccess ? Status::ok() : internal("{} bytes of shared memory: {}", bytes, cudaGetErrorString(e));
}
constexpr int64_t kMostShared = 227 << 10;  // that a block of an H100 or H200 can have

constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// ---- values

__device__ inline float load_value(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(data)[i]);
    case DType::kF16:
      return to_float(static_cast<const f16*>(data)[i]);
    case DType::kE4M3:
      return to_float(static_cast<const e4m3*>(data)[i]);
    default:
      return static_cast<float>(static_cast<const int8_t*>(data)[i]);
  }
}

__device__ inline void store_value(void* data, DType dtype, int64_t i, float value) {
  if (dtype == DType::kF32)
    static_cast<float*>(data)[i] = value;
  else
    static_cast<bf16*>(data)[i] = to_bf16(value);
}

__device__ inline float rounded(float value, DType dtype) { return dtype == DType::kBF16 ? round_bf16(value) : value; }

// f32 and bf16 rows.
__device__ inline float load(const Rows& r, int64_t row, int64_t i) {
  return load_value(r.data, r.dtype, row * r.stride + i);
}
__device__ inline void store(const Rows& r, int64_t row, int64_t i, float value) {
  store_value(r.data, r.dtype, row * r.stride + i, value);
}
__device__ inline float load(const Pool& p, int64_t item, int64_t i) {
  return load_value(p.data, p.dtype, item * p.item_size + i);
}
__device__ inline void store(const Pool& p, int64_t item, int64_t i, float value) {
  store_value(p.data, p.dtype, item * p.item_size + i, value);
}

// ---- reductions; every thread gets the result

constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ inline T warp_sum(T x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
template <class T>
__device__ inline T warp_max(T x) {
  for (int step = 16; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}

// Of a block of up to 1024 threads, a multiple of 32. `space`: 32 values of shared memory, free again on return.
template <class T, class Join>
__device__ inline T block_reduce(T x, T* space, Join join) {
  for (int step = 16; step > 0; step /= 2) x = join(x, __shfl_xor_sync(kAllLanes, x, step));
  const int warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = x;
  __syncthreads();
  T all = space[0];
  for (int w = 1; w < warps; ++w) all = join(all, space[w]);
  __syncthreads();
  return all;
}
template <class T>
__device__ inline T block_sum(T x, T* space) {
  return block_reduce(x, space, [](T a, T b) { return a + b; });
}

// ---- sequences

// Which of the stretches [start[i], start[i + 1]) holds `row`; -1: none. start ascends and has count + 1 entries.
__device__ inline int64_t stretch_of(const Array<const int32_t>& start, int64_t count, int64_t row) {
  if (count == 0 || row < start[0] || row >= start[count]) return -1;
  int64_t low = 0, high = count;  // start[low] <= row < start[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (start[middle] <= row ? low : high) = middle;
  }
  return low;
}

}  // namespace lathe::cuda
