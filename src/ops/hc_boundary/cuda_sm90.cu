#include "ops/cuda_kernel.cuh"
#include "ops/hc_boundary/streams.cuh"
#include "ops/hc_boundary/variants.h"

// Two launches. `mix`: blocks take a few rows and a slice of the hidden width, mix the streams, write them, and add up what
// the slice gives to each of the mapping's sums. `collapse`: a block a row joins the slices in order, finds the coefficients
// and collapses the row. Slices depend on the width alone, so a row's bits don't depend on its company.
namespace lathe::cuda {

namespace {

constexpr int kSlice = 128, kThreads = 256, kWarps = kThreads / 32;
constexpr int kAtOnce = 3;  // of the mapping's sums, by a warp: S = 4 has 24, three for each of eight warps
constexpr int kMostSums = 2 * kMostCopies + kMostCopies * kMostCopies;

__device__ float wide(float x) { return x; }
__device__ float wide(bf16 x) { return to_float(x); }

// `parts`: [rows, slices, n + 1]; the last of the sums is that of squares.
template <class Fn, int kRows>
__global__ void __launch_bounds__(kThreads) mix_kernel(HcBoundaryArgs a, float* parts) {
  extern __shared__ float mixed[];  // [kRows][copies·kSlice]
  const int64_t row0 = int64_t{blockIdx.x} * kRows, hidden = a.u.width, begin = int64_t{blockIdx.y} * kSlice;
  const int columns = static_cast<int>(min(hidden - begin, int64_t{kSlice})), width = a.copies * kSlice;
  const StreamMix mix{a.streams, a.y, a.post, a.comb, a.copies};
  for (int at = threadIdx.x; at < kRows * kSlice; at += kThreads) {
    const int r = at / kSlice, c = at % kSlice;
    const bool there = row0 + r < a.u.rows && c < columns;
    float x[kMostCopies] = {};
    if (there) mix(row0 + r, begin + c, hidden, x);
#pragma unroll
    for (int s = 0; s < kMostCopies; ++s) {
      if (s >= a.copies) break;
      x[s] = rounded(x[s], a.streams_out.dtype);
      mixed[r * width + s * kSlice + c] = x[s];
      if (there) store(a.streams_out, row0 + r, s * hidden + begin + c, x[s]);
    }
  }
  __syncthreads();

  const int n = static_cast<int>(a.fn.out), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Fn* fn = static_cast<const Fn*>(a.fn.data);
  for (int o0 = warp * kAtOnce; o0 <= n; o0 += kWarps * kAtOnce) {
    float sum[kAtOnce][kRows] = {};
    for (int s = 0; s < a.copies; ++s)
      for (int c = lane; c < columns; c += 32) {
        float x[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) x[r] = mixed[r * width + s * kSlice + c];
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) {
          const int o = o0 + q;
          const float f = o < n ? wide(fn[o * a.fn.stride + s * hidden + begin + c]) : 0;
#pragma unroll
          for (int r = 0; r < kRows; ++r) sum[q][r] += x[r] * (o == n ? x[r] : f);
        }
      }
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float all = warp_sum(sum[q][r]);
        if (lane == 0 && o0 + q <= n && row0 + r < a.u.rows)
          parts[((row0 + r) * gridDim.y + blockIdx.y) * (n + 1) + o0 + q] = all;
      }
  }
}

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// m[i] /= their sum + eps, for i = start, start + step, ...
template <int kCopies>
__device__ void divide_by_sum(float* m, int copies, int start, int step, float eps) {
  if constexpr (kCopies > 0) copies = kCopies;
  float sum = m[start];
#pragma unroll
  for (int i = 1; i < copies; ++i) sum += m[start + i * step];
  const float inverse = 1 / (sum + eps);
#pragma unroll
  for (int i = 0; i < copies; ++i) m[start + i * step] *= inverse;
}

// Logits [S, S] to a matrix whose rows and columns sum to one, nearly. kCopies 4 keeps it in registers; 0: any number.
template <int kCopies>
__device__ void sinkhorn(float* m, int copies, int iterations, float eps) {
  if constexpr (kCopies > 0) copies = kCopies;
#pragma unroll
  for (int j = 0; j < copies; ++j) {
    float* row = m + j * copies;
    float top = row[0];
#pragma unroll
    for (int s = 1; s < copies; ++s) top = fmaxf(top, row[s]);
#pragma unroll
    for (int s = 0; s < copies; ++s) row[s] = expf(row[s] - top);
    divide_by_sum<kCopies>(m, copies, j * copies, 1, 0);
#pragma unroll
    for (int s = 0; s < copies; ++s) row[s] += eps;
  }
#pragma unroll
  for (int s = 0; s < copies; ++s) divide_by_sum<kCopies>(m, copies, s, copies, eps);
  for (int i = 1; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < copies; ++j) divide_by_sum<kCopies>(m, copies, j * copies, 1, eps);
#pragma unroll
    for (int s = 0; s < copies; ++s) divide_by_sum<kCopies>(m, copies, s, copies, eps);
  }
}

template <int kCopies>
__device__ void store_comb(const HcBoundaryArgs& a, int64_t row, const float* logits) {
  const int copies = kCopies > 0 ? kCopies : a.copies;
  float m[kCopies > 0 ? kCopies * kCopies : kMostCopies * kMostCopies];
#pragma unroll
  for (int i = 0; i < copies * copies; ++i) m[i] = logits[i] * a.scale[2] + a.base[2 * copies + i];
  sinkhorn<kCopies>(m, copies, a.sinkhorn_iters, a.hc_eps);
#pragma unroll
  for (int i = 0; i < copies * copies; ++i) a.comb_out[row * copies * copies + i] = m[i];
}

__global__ void __launch_bounds__(kThreads) collapse_kernel(HcBoundaryArgs a, const float* parts, int slices) {
  extern __shared__ float v[];  // [hidden]
  __shared__ float m[kMostSums + 1], pre[kMostCopies], space[32];
  const int64_t row = blockIdx.x, hidden = a.u.width;
  const int n = static_cast<int>(a.fn.out), copies = a.copies;
  for (int o = threadIdx.x; o <= n; o += kThreads) {
    float sum = 0;
    for (int s = 0; s < slices; ++s) sum += parts[(row * slices + s) * (n + 1) + o];
    m[o] = sum;
  }
  __syncthreads();
  const float scale = 1 / sqrtf(m[n] / static_cast<float>(copies * hidden) + a.norm_eps);
  __syncthreads();
  for (int o = threadIdx.x; o < n; o += kThreads) m[o] *= scale;
  __syncthreads();
  if (threadIdx.x < copies) {
    const int s = threadIdx.x;
    pre[s] = sigmoid(m[s] * a.scale[0] + a.base[s]) + a.hc_eps;
    a.post_out[row * copies + s] = 2 * sigmoid(m[copies + s] * a.scale[1] + a.base[copies + s]);
  }
  __syncthreads();
  if (threadIdx.x == 0)  // one warp is late, the others collapse the row meanwhile
    copies == 4 ? store_comb<4>(a, row, m + 8) : store_comb<0>(a, row, m + 2 * copies);
  float square = 0;
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) {
    float sum = 0;
    for (int s = 0; s < copies; ++s) sum += pre[s] * load(a.streams_out, row, s * hidden + i);
    v[i] = sum;
    square += sum * sum;
  }
  const float r = 1 / sqrtf(block_sum(square, space) / static_cast<float>(hidden) + a.norm_eps);
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) store(a.u, row, i, a.norm_weight[i] * v[i] * r);
}

template <class Fn, int kRows>
Status mix_rows(OpContext& ctx, const HcBoundaryArgs& a, float* parts, int slices) {
  const int64_t shared = int64_t{kRows} * a.copies * kSlice * 4;
  LATHE_RETURN_IF_ERROR(allow_shared(mix_kernel<Fn, kRows>, shared));
  const dim3 grid(static_cast<unsigned>(ceil_div(a.u.rows, kRows)), slices);
  mix_kernel<Fn, kRows><<<grid, kThreads, shared, stream_of(ctx)>>>(a, parts);
  return launched("hc_boundary mix");
}

template <class Fn>
Status mix_rows(OpContext& ctx, const HcBoundaryArgs& a, float* parts, int slices) {
  if (a.u.rows >= 512) return mix_rows<Fn, 8>(ctx, a, parts, slices);
  return a.u.rows >= 32 ? mix_rows<Fn, 4>(ctx, a, parts, slices) : mix_rows<Fn, 1>(ctx, a, parts, slices);
}

}  // namespace

bool hc_boundary_applies(const HcBoundaryArgs& a) {
  return a.copies <= kMostCopies && a.u.width * 4 <= kMostShared - 2048;
}

Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& a) {
  if (a.u.rows == 0) return Status::ok();
  ArenaScope scope(*ctx.scratch);
  const int slices = static_cast<int>(ceil_div(a.u.width, kSlice));
  float* parts = ctx.scratch->take<float>(a.u.rows * slices * (a.fn.out + 1));
  LATHE_RETURN_IF_ERROR(a.fn.dtype == DType::kF32 ? mix_rows<float>(ctx, a, parts, slices)
                                                  : mix_rows<bf16>(ctx, a, parts, slices));
  const int64_t shared = a.u.width * 4;
  LATHE_RETURN_IF_ERROR(allow_shared(collapse_kernel, shared));
  collapse_kernel<<<static_cast<unsigned>(a.u.rows), kThreads, shared, stream_of(ctx)>>>(a, parts, slices);
  return launched("hc_boundary collapse");
}

}  // namespace lathe::cuda
