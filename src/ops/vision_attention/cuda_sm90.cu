#include "ops/cuda_kernel.cuh"
#include "ops/vision_attention/variants.h"

// Heads of q and k are normed and rotated once, into scratch; then a warp takes four queries of a head and goes through
// the keys of their segment, 32 at a time: a lane is a key for the scores, and a few channels for the sum.
namespace lathe::cuda {

namespace {

constexpr int kWarps = 8, kQueriesPerWarp = 4, kQueries = kWarps * kQueriesPerWarp, kKeys = 32, kMostDim = 256;

// Block: a warp a head row, of q (part 0) or k (part 1). turned: [2][patches][heads·dim].
__global__ void rotate_kernel(VisionAttentionArgs a, float* turned) {
  const int64_t at = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32, patches = a.qkv.rows;
  if (at >= 2 * patches * a.heads) return;
  const int lane = threadIdx.x % 32, part = static_cast<int>(at / (patches * a.heads)), half = a.dim / 2;
  const int64_t patch = at / a.heads % patches, column = (part * a.heads + at % a.heads) * a.dim;
  const Array<const float>& weight = part == 0 ? a.q_norm : a.k_norm;
  float square = 0;
  for (int i = lane; i < a.dim; i += 32) {
    const float x = load(a.qkv, patch, column + i);
    square += x * x;
  }
  const float scale = 1 / sqrtf(warp_sum(square) / static_cast<float>(a.dim) + a.norm_eps);
  auto normed = [&](int i) {
    return rounded(weight[i] * rounded(load(a.qkv, patch, column + i) * scale, a.qkv.dtype), a.qkv.dtype);
  };
  float* out = turned + (part * patches + patch) * a.heads * a.dim + at % a.heads * a.dim;
  for (int i = lane; i < half; i += 32) {
    const int quarter = a.dim / 4;
    const double frequency = pow(double{a.theta}, -2.0 * (i % quarter) / half);
    const double angle = (i < quarter ? a.row[patch] : a.col[patch]) * frequency;
    const float c = static_cast<float>(cos(angle)), s = static_cast<float>(sin(angle));
    const float x = normed(i), y = normed(i + half);
    out[i] = rounded(x * c - y * s, a.qkv.dtype);
    out[i + half] = rounded(y * c + x * s, a.qkv.dtype);
  }
}

// Grid: blocks of queries of a segment, head, segment.
template <int kPieces>  // of 32 channels that hold a head
__global__ void __launch_bounds__(kWarps * 32) attend_kernel(VisionAttentionArgs a, const float* turned) {
  extern __shared__ float shared[];
  const int64_t begin = a.segment_start[blockIdx.z], end = a.segment_start[blockIdx.z + 1];
  const int64_t first = begin + int64_t{blockIdx.x} * kQueries;
  if (first >= end) return;
  const int head = blockIdx.y, dim = a.dim, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t width = int64_t{a.heads} * dim;
  float *query = shared, *key = query + kQueries * dim, *value = key + kKeys * (dim + 1);
  const float root = 1 / sqrtf(static_cast<float>(dim));
  for (int at = threadIdx.x; at < kQueries * dim; at += blockDim.x) {
    const int64_t patch = first + at / dim;
    query[at] = patch < end ? turned[patch * width + head * dim + at % dim] * root : 0;
  }
  float top[kQueriesPerWarp], total[kQueriesPerWarp], out[kQueriesPerWarp][kPieces] = {};
  for (int q = 0; q < kQueriesPerWarp; ++q) top[q] = -INFINITY, total[q] = 0;
  for (int64_t block = begin; block < end; block += kKeys) {
    __syncthreads();
    for (int at = threadIdx.x; at < kKeys * dim; at += blockDim.x) {
      const int64_t patch = block + at / dim;
      const int i = at % dim;
      const bool there = patch < end;
      key[at / dim * (dim + 1) + i] = there ? turned[(a.qkv.rows + patch) * width + head * dim + i] : 0;
      value[at] = there ? load(a.qkv, patch, 2 * width + head * dim + i) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < kQueriesPerWarp; ++q) {
      const float* mine = query + (warp * kQueriesPerWarp + q) * dim;
      float score = 0;
      for (int i = 0; i < dim; ++i) score += mine[i] * key[lane * (dim + 1) + i];
      if (block + lane >= end) score = -INFINITY;
      const float higher = fmaxf(top[q], warp_max(score)), shrink = expf(top[q] - higher), p = expf(score - higher);
      top[q] = higher;
      total[q] = total[q] * shrink + warp_sum(p);
#pragma unroll
      for (int c = 0; c < kPieces; ++c) out[q][c] *= shrink;
      for (int j = 0; j < kKeys; ++j) {
        const float pj = __shfl_sync(kAllLanes, p, j);
#pragma unroll
        for (int c = 0; c < kPieces; ++c)
          if (c * 32 + lane < dim) out[q][c] += pj * value[j * dim + c * 32 + lane];
      }
    }
  }
  for (int q = 0; q < kQueriesPerWarp; ++q) {
    const int64_t patch = first + warp * kQueriesPerWarp + q;
    if (patch >= end) continue;
#pragma unroll
    for (int c = 0; c < kPieces; ++c)
      if (c * 32 + lane < dim) store(a.out, patch, int64_t{head} * dim + c * 32 + lane, out[q][c] / total[q]);
  }
}

template <int kPieces>
Status attend(OpContext& ctx, const VisionAttentionArgs& a, const float* turned) {
  const int64_t shared = int64_t{4} * (kQueries * a.dim + kKeys * (a.dim + 1) + kKeys * a.dim);
  LATHE_RETURN_IF_ERROR(allow_shared(attend_kernel<kPieces>, shared));
  // How long a segment is stands in device memory; no one is longer than all patches.
  const dim3 grid(static_cast<unsigned>(ceil_div(a.qkv.rows, kQueries)), a.heads,
                  static_cast<unsigned>(a.segment_start.count - 1));
  attend_kernel<kPieces><<<grid, kWarps * 32, shared, stream_of(ctx)>>>(a, turned);
  return launched("vision_attention");
}

}  // namespace

bool vision_attention_applies(const VisionAttentionArgs& a) { return a.dim <= kMostDim; }

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& a) {
  if (a.qkv.rows == 0 || a.segment_start.count < 2) return Status::ok();
  ArenaScope scope(*ctx.scratch);
  const int64_t head_rows = 2 * a.qkv.rows * a.heads;
  float* turned = ctx.scratch->take<float>(head_rows * a.dim);
  rotate_kernel<<<static_cast<unsigned>(ceil_div(head_rows, 8)), 256, 0, stream_of(ctx)>>>(a, turned);
  LATHE_RETURN_IF_ERROR(launched("vision_attention rotation"));
  if (a.dim <= 32) return attend<1>(ctx, a, turned);
  if (a.dim <= 64) return attend<2>(ctx, a, turned);
  return a.dim <= 128 ? attend<4>(ctx, a, turned) : attend<8>(ctx, a, turned);
}

}  // namespace lathe::cuda
