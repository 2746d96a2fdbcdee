#include <climits>

#include "ops/cuda_kernel.cuh"
#include "ops/index_select/variants.h"

// Four launches: pools that new rows complete, then the ring they go into (the first reads what the second overwrites),
// then scores, then each row's choice by radix selection. Scores of a call lie in scratch, for as many rows at once as
// kScoreFloats holds.
namespace lathe::cuda {

namespace {

constexpr int kMostDim = 1024, kThreads = 128, kSelectThreads = 1024, kPoolsPerBlock = 64;
constexpr int64_t kScoreFloats = int64_t{64} << 20;

// Where the value of channel 0 of pool p lies in `pages`.
__device__ int64_t pool_offset(const IndexSelectArgs& a, int64_t sequence, int64_t p) {
  const int64_t per_page = a.page_tokens / a.kpool;
  return a.table[sequence * a.table_stride + p / per_page] * a.pages.item_size + p % per_page * a.dim;
}

// LayerNorm of a new row: mean and 1/deviation. The whole block takes part.
struct KeyNorm {
  float mean, scale;
};
__device__ KeyNorm key_norm(const IndexSelectArgs& a, int64_t row, float* space) {
  float sum = 0, square = 0;
  for (int d = threadIdx.x; d < a.dim; d += blockDim.x) sum += load(a.key, row, d);
  const float mean = block_sum(sum, space) / static_cast<float>(a.dim);
  for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
    const float x = load(a.key, row, d) - mean;
    square += x * x;
  }
  return {mean, 1 / sqrtf(block_sum(square, space) / static_cast<float>(a.dim) + a.key_norm_eps)};
}
__device__ float normed_key(const IndexSelectArgs& a, int64_t row, int d, const KeyNorm& norm) {
  const float normed = (load(a.key, row, d) - norm.mean) * norm.scale;
  return rounded(a.key_norm_weight[d] * normed + a.key_norm_bias[d], a.pages.dtype);
}

// Block: a new row. The one that completes a pool writes its key, from the rows before it or what the ring kept of them.
__global__ void pool_kernel(IndexSelectArgs a) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x, sequence = stretch_of(a.fresh.start, a.slot.count, row);
  if (sequence < 0 || a.slot[sequence] < 0) return;
  const int64_t first = a.fresh.start[sequence], past = a.fresh.past[sequence], t = past + row - first;
  if ((t + 1) % a.kpool != 0) return;
  constexpr int kMine = kMostDim / kThreads;
  float top[kMine], sum[kMine], key[kMine];
  for (int c = 0; c < kMine; ++c) top[c] = -INFINITY, sum[c] = 0, key[c] = 0;
  for (int j = 0; j < a.kpool; ++j) {
    const int64_t position = t + 1 - a.kpool + j;
    const bool fresh = position >= past;
    const int64_t member = first + position - past, kept = position % a.ring * 2 * a.dim;
    const KeyNorm norm = fresh ? key_norm(a, member, space) : KeyNorm{};  // one answer for the whole block
#pragma unroll
    for (int c = 0; c < kMine; ++c) {
      const int d = c * kThreads + threadIdx.x;
      if (d >= a.dim) break;
      const float k = fresh ? normed_key(a, member, d, norm) : load(a.open, a.slot[sequence], kept + d);
      const float g = (fresh ? rounded(load(a.gate, member, d), a.pages.dtype)
                             : load(a.open, a.slot[sequence], kept + a.dim + d)) +
                      a.ape[j * a.dim + d];
      const float higher = fmaxf(top[c], g), shrink = expf(top[c] - higher), alpha = expf(g - higher);
      top[c] = higher, sum[c] = sum[c] * shrink + alpha, key[c] = key[c] * shrink + alpha * k;
    }
  }
  const int64_t to = pool_offset(a, sequence, t / a.kpool);
#pragma unroll
  for (int c = 0; c < kMine; ++c) {
    const int d = c * kThreads + threadIdx.x;
    if (d < a.dim) store_value(a.pages.data, a.pages.dtype, to + d, key[c] / sum[c]);
  }
}

// Block: a new row; the last `ring` of a sequence are kept.
__global__ void ring_kernel(IndexSelectArgs a) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x, sequence = stretch_of(a.fresh.start, a.slot.count, row);
  if (sequence < 0 || a.slot[sequence] < 0) return;
  const int64_t first = a.fresh.start[sequence], past = a.fresh.past[sequence], t = past + row - first;
  if (t < past + a.fresh.start[sequence + 1] - first - a.ring) return;
  const KeyNorm norm = key_norm(a, row, space);
  const int64_t to = t % a.ring * 2 * a.dim;
  for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
    store(a.open, a.slot[sequence], to + d, normed_key(a, row, d, norm));
    store(a.open, a.slot[sequence], to + a.dim + d, load(a.gate, row, d));
  }
}

// A query row's place: -1 for padding.
struct Query {
  int64_t sequence, position, pools;
};
__device__ Query query_of(const IndexSelectArgs& a, int64_t row) {
  const int64_t sequence = stretch_of(a.queries.start, a.slot.count, row);
  if (sequence < 0 || a.slot[sequence] < 0) return {-1, 0, 0};
  const int64_t position = a.queries.past[sequence] + row - a.queries.start[sequence];
  return {sequence, position, (position + 1) / a.kpool};
}

// Grid: (blocks of pools, rows). A thread a pool; its key is a row of shared memory. NaN counts as -inf.
__global__ void __launch_bounds__(kPoolsPerBlock) score_kernel(IndexSelectArgs a, int64_t row0, float* scores,
                                                               int64_t stride) {
  extern __shared__ float shared[];
  const int64_t row = row0 + blockIdx.y, first = int64_t{blockIdx.x} * kPoolsPerBlock;
  const Query q = query_of(a, row);
  if (q.sequence < 0 || q.pools <= a.top_k / a.kpool || first >= q.pools) return;
  float *query = shared, *weight = query + a.heads * a.dim, *keys = weight + a.heads;
  for (int i = threadIdx.x; i < a.heads * a.dim; i += kPoolsPerBlock) query[i] = load(a.query, row, i);
  for (int h = threadIdx.x; h < a.heads; h += kPoolsPerBlock)
    weight[h] = load(a.head_weight, row, h) / sqrtf(static_cast<float>(a.heads));
  for (int i = threadIdx.x; i < kPoolsPerBlock * a.dim; i += kPoolsPerBlock) {
    const int64_t p = first + i / a.dim;
    keys[i / a.dim * (a.dim + 1) + i % a.dim] =
        p < q.pools ? load_value(a.pages.data, a.pages.dtype, pool_offset(a, q.sequence, p) + i % a.dim) : 0;
  }
  __syncthreads();
  const float *key = keys + threadIdx.x * (a.dim + 1), root = 1 / sqrtf(static_cast<float>(a.dim));
  float sum = 0;
  for (int h = 0; h < a.heads; ++h) {
    float dot = 0;
    for (int d = 0; d < a.dim; ++d) dot += query[h * a.dim + d] * key[d];
    dot *= root;
    sum += weight[h] * (dot < 0 ? 0 : dot);
  }
  if (first + threadIdx.x < q.pools)
    scores[int64_t{blockIdx.y} * stride + first + threadIdx.x] = isnan(sum) ? -INFINITY : sum;
}

// Unsigned integers in the order of the numbers.
__device__ unsigned order_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.0f);  // -0 and 0 are one number
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The order of the last chosen of `pools` scores, and how many that have it are chosen: a byte a pass, from the top.
struct Threshold {
  unsigned order;
  int ties;
};
__device__ Threshold find_threshold(const float* scores, int64_t pools, int wanted) {
  __shared__ int histogram[256];
  __shared__ unsigned prefix;
  __shared__ int left;
  if (threadIdx.x == 0) prefix = 0, left = wanted;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    const unsigned high = prefix;
    for (int64_t p = threadIdx.x; p < pools; p += blockDim.x) {
      const unsigned order = order_of(scores[p]);
      if (shift == 24 || order >> (shift + 8) == high) atomicAdd(&histogram[order >> shift & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255, above = 0;
      while (digit > 0 && above + histogram[digit] < left) above += histogram[digit--];
      left -= above;
      prefix = high << 8 | static_cast<unsigned>(digit);
    }
    __syncthreads();
  }
  return {prefix, left};
}

// Block: a query row.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(IndexSelectArgs a, int64_t row0, const float* scores,
                                                                int64_t stride) {
  __shared__ int warp_above[32], warp_ties[32];
  const int64_t row = row0 + blockIdx.x;
  const Query q = query_of(a, row);
  int32_t* out = a.selected.data + row * a.width();
  const int budget = a.top_k / a.kpool, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool scored = q.pools > budget;
  scores += int64_t{blockIdx.x} * stride;
  Threshold threshold{0, INT_MAX};
  if (scored) threshold = find_threshold(scores, q.pools, budget);
  int chosen = 0, ties = 0;  // before this stretch of pools
  for (int64_t begin = 0; begin < q.pools; begin += blockDim.x) {
    const int64_t p = begin + threadIdx.x;
    const unsigned order = scored && p < q.pools ? order_of(scores[p]) : 0;
    const bool above = p < q.pools && (!scored || order > threshold.order);
    const bool tie = p < q.pools && scored && order == threshold.order;
    const unsigned aboves = __ballot_sync(kAllLanes, above), tie_votes = __ballot_sync(kAllLanes, tie);
    if (lane == 0) warp_above[warp] = __popc(aboves), warp_ties[warp] = __popc(tie_votes);
    __syncthreads();
    const unsigned before = (1u << lane) - 1;
    int above_before = __popc(aboves & before), ties_before = ties + __popc(tie_votes & before);
    int all_above = 0, all_ties = 0;
    for (int w = 0; w < kSelectThreads / 32; ++w) {
      if (w < warp) above_before += warp_above[w], ties_before += warp_ties[w];
      all_above += warp_above[w], all_ties += warp_ties[w];
    }
    // Chosen ties before this pool, within this stretch: those that are still allowed.
    const int allowed_before = min(ties_before, threshold.ties) - min(ties, threshold.ties);
    if (above || (tie && ties_before < threshold.ties)) {
      const int at = (chosen + above_before + allowed_before) * a.kpool;
      for (int j = 0; j < a.kpool; ++j) out[at + j] = static_cast<int32_t>(p * a.kpool + j);
    }
    chosen += all_above + min(ties + all_ties, threshold.ties) - min(ties, threshold.ties);
    ties += all_ties;
    __syncthreads();
  }
  int count = chosen * a.kpool;
  if (q.sequence >= 0 && a.tail) {
    const int64_t tail = q.pools * a.kpool, open = q.position + 1 - tail;
    for (int64_t j = threadIdx.x; j < open; j += blockDim.x) out[count + j] = static_cast<int32_t>(tail + j);
    count += static_cast<int>(open);
  }
  for (int i = count + threadIdx.x; i < a.width(); i += blockDim.x) out[i] = -1;
  if (threadIdx.x == 0) a.selected_count[row] = count;
}

int64_t score_shared(const IndexSelectArgs& a) {
  return int64_t{4} * (a.heads * a.dim + a.heads + kPoolsPerBlock * (a.dim + 1));
}

}  // namespace

bool index_select_applies(const IndexSelectArgs& a) { return a.dim <= kMostDim && score_shared(a) <= kMostShared - 1024; }

Status index_select(OpContext& ctx, const IndexSelectArgs& a) {
  const cudaStream_t stream = stream_of(ctx);
  if (a.key.rows > 0) {
    pool_kernel<<<static_cast<unsigned>(a.key.rows), kThreads, 0, stream>>>(a);
    ring_kernel<<<static_cast<unsigned>(a.key.rows), kThreads, 0, stream>>>(a);
    LATHE_RETURN_IF_ERROR(launched("index_select pools"));
  }
  ArenaScope scope(*ctx.scratch);
  // How many pools a sequence has stands in device memory; no more than its part of the table holds.
  const int64_t pools = std::max<int64_t>(a.table_stride * (a.page_tokens / a.kpool), 1), rows = a.query.rows;
  const bool may_score = pools > a.top_k / a.kpool;
  const int64_t at_once = may_score ? std::clamp<int64_t>(kScoreFloats / pools, 1, 32768) : rows;
  float* scores = may_score ? ctx.scratch->take<float>(std::min(at_once, rows) * pools) : nullptr;
  LATHE_RETURN_IF_ERROR(allow_shared(score_kernel, score_shared(a)));
  for (int64_t row = 0; row < rows; row += at_once) {
    const auto count = static_cast<unsigned>(std::min(at_once, rows - row));
    if (may_score)
      score_kernel<<<dim3(static_cast<unsigned>(ceil_div(pools, kPoolsPerBlock)), count), kPoolsPerBlock,
                     score_shared(a), stream>>>(a, row, scores, pools);
    select_kernel<<<count, kSelectThreads, 0, stream>>>(a, row, scores, pools);
    LATHE_RETURN_IF_ERROR(launched("index_select"));
  }
  return Status::ok();
}

}  // namespace lathe::cuda
