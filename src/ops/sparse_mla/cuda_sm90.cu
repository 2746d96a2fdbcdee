#include "ops/cuda_kernel.cuh"
#include "ops/sparse_mla/variants.h"

// Absorbed form, in fp32, for any sizes: new latents to their pages; queries through Wk; each row over its set, 32 tokens
// at a time with a running softmax; sums through Wv. A row's bits depend on its set alone.
namespace lathe::cuda {

namespace {

constexpr int kThreads = 256, kHeads = 8, kTokens = 32, kRowsAtOnce = 4, kMostPieces = 4;  // of kThreads latent channels
// Rows at once, so that queries and sums of all heads stay within scratch.
constexpr int64_t kScratchFloats = int64_t{128} << 20;

// Where channel 0 of a position's latent lies in `pages`.
__device__ int64_t latent_offset(const SparseMlaArgs& a, int64_t sequence, int64_t position) {
  const int64_t page = a.table[sequence * a.table_stride + position / a.page_tokens];
  return page * a.pages.item_size + position % a.page_tokens * a.latent_dim;
}

// Block: a new row.
__global__ void latent_kernel(SparseMlaArgs a) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x, sequence = stretch_of(a.fresh.start, a.slot.count, row);
  if (sequence < 0 || a.slot[sequence] < 0) return;
  float square = 0;
  for (int l = threadIdx.x; l < a.latent_dim; l += blockDim.x) {
    const float x = load(a.latent, row, l);
    square += x * x;
  }
  const float scale = 1 / sqrtf(block_sum(square, space) / static_cast<float>(a.latent_dim) + a.norm_eps);
  const int64_t to = latent_offset(a, sequence, a.fresh.past[sequence] + row - a.fresh.start[sequence]);
  for (int l = threadIdx.x; l < a.latent_dim; l += blockDim.x)
    store_value(a.pages.data, a.pages.dtype, to + l,
                a.latent_norm[l] * rounded(load(a.latent, row, l) * scale, a.pages.dtype));
}

// q~ = Wkᵀ·q·qk^-½. Grid: (blocks of rows, heads). q~: [rows, heads, latent].
template <int kPieces>
__global__ void __launch_bounds__(kThreads) query_kernel(SparseMlaArgs a, int64_t row0, int64_t rows, float* latent_query) {
  extern __shared__ float query[];  // [kRowsAtOnce][qk]
  const int64_t first = int64_t{blockIdx.x} * kRowsAtOnce, head = blockIdx.y;
  const float root = 1 / sqrtf(static_cast<float>(a.qk));
  for (int at = threadIdx.x; at < kRowsAtOnce * a.qk; at += kThreads) {
    const int64_t row = first + at / a.qk;
    query[at] = row < rows ? load(a.query, row0 + row, head * a.qk + at % a.qk) * root : 0;
  }
  __syncthreads();
  float sum[kRowsAtOnce][kPieces] = {};
  for (int i = 0; i < a.qk; ++i) {
    const int64_t weight = (head * (a.qk + a.v) + i) * a.kv_b.stride;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const int l = c * kThreads + threadIdx.x;
      if (l >= a.latent_dim) break;
      const float w = load_value(a.kv_b.data, a.kv_b.dtype, weight + l);
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) sum[r][c] += query[r * a.qk + i] * w;
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r)
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const int l = c * kThreads + threadIdx.x;
      if (first + r < rows && l < a.latent_dim)
        latent_query[((first + r) * a.heads + head) * a.latent_dim + l] = sum[r][c];
    }
}

// Grid: (groups of heads, rows). A warp a head for the scores, where a lane is a token; a thread a few channels for the
// sums. q~ becomes z.
template <int kPieces>
__global__ void __launch_bounds__(kThreads) attend_kernel(SparseMlaArgs a, int64_t row0, float* latent_query) {
  extern __shared__ float shared[];
  const int64_t row = row0 + blockIdx.y;
  const int head0 = blockIdx.x * kHeads, heads = min(kHeads, a.heads - head0), latent = a.latent_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float *query = shared, *tokens = query + kHeads * latent, *p = tokens + kTokens * (latent + 1);
  float *shrink = p + kHeads * kTokens, *total = shrink + kHeads;
  float* mine = latent_query + (int64_t{blockIdx.y} * a.heads + head0) * latent;
  const int64_t sequence = stretch_of(a.queries.start, a.slot.count, row);
  const int count = sequence < 0 || a.slot[sequence] < 0 ? 0 : a.selected_count[row];
  const int32_t* set = a.selected.data + row * a.selected_width;
  for (int at = threadIdx.x; at < kHeads * latent; at += kThreads) query[at] = at < heads * latent ? mine[at] : 0;
  float top = -INFINITY, sum = 0, z[kHeads][kPieces] = {};
  for (int first = 0; first < count; first += kTokens) {
    __syncthreads();
    for (int j = warp; j < kTokens; j += kThreads / 32) {
      const int64_t from = first + j < count ? latent_offset(a, sequence, set[first + j]) : 0;
      for (int l = lane; l < latent; l += 32)
        tokens[j * (latent + 1) + l] = first + j < count ? load_value(a.pages.data, a.pages.dtype, from + l) : 0;
    }
    __syncthreads();
    float score = 0;
    for (int l = 0; l < latent; ++l) score += query[warp * latent + l] * tokens[lane * (latent + 1) + l];
    if (first + lane >= count) score = -INFINITY;
    const float higher = fmaxf(top, warp_max(score)), mass = expf(score - higher), decay = expf(top - higher);
    top = higher, sum = sum * decay + warp_sum(mass);
    p[warp * kTokens + lane] = mass;
    if (lane == 0) shrink[warp] = decay;
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int c = 0; c < kPieces; ++c) z[h][c] *= shrink[h];
    for (int j = 0; j < kTokens; ++j)
#pragma unroll
      for (int c = 0; c < kPieces; ++c) {
        const int l = c * kThreads + threadIdx.x;
        if (l >= latent) break;
        const float x = tokens[j * (latent + 1) + l];
#pragma unroll
        for (int h = 0; h < kHeads; ++h) z[h][c] += p[h * kTokens + j] * x;
      }
  }
  if (lane == 0) total[warp] = sum;
  __syncthreads();
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const int l = c * kThreads + threadIdx.x;
      if (h < heads && l < latent) mine[h * latent + l] = count ? z[h][c] / total[h] : 0;
    }
}

// o = Wv·z. Grid: (blocks of rows, heads); a warp an output.
__global__ void __launch_bounds__(kThreads) value_kernel(SparseMlaArgs a, int64_t row0, int64_t rows, const float* z) {
  extern __shared__ float sums[];  // [kRowsAtOnce][latent]
  const int64_t first = int64_t{blockIdx.x} * kRowsAtOnce, head = blockIdx.y;
  const int latent = a.latent_dim, lane = threadIdx.x % 32;
  for (int at = threadIdx.x; at < kRowsAtOnce * latent; at += kThreads) {
    const int64_t row = first + at / latent;
    sums[at] = row < rows ? z[(row * a.heads + head) * latent + at % latent] : 0;
  }
  __syncthreads();
  for (int i = threadIdx.x / 32; i < a.v; i += kThreads / 32) {
    const int64_t weight = (head * (a.qk + a.v) + a.qk + i) * a.kv_b.stride;
    float o[kRowsAtOnce] = {};
    for (int l = lane; l < latent; l += 32) {
      const float w = load_value(a.kv_b.data, a.kv_b.dtype, weight + l);
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) o[r] += w * sums[r * latent + l];
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const float all = warp_sum(o[r]);
      if (lane == 0 && first + r < rows) store(a.out, row0 + first + r, head * a.v + i, all);
    }
  }
}

int64_t attend_shared(const SparseMlaArgs& a) {
  return int64_t{4} * (kHeads * a.latent_dim + kTokens * (a.latent_dim + 1) + kHeads * (kTokens + 2));
}

template <int kPieces>
Status attend(OpContext& ctx, const SparseMlaArgs& a, int64_t row0, int64_t rows, float* latent_query) {
  const int64_t query_shared = int64_t{4} * kRowsAtOnce * a.qk, value_shared = int64_t{4} * kRowsAtOnce * a.latent_dim;
  const dim3 row_blocks(static_cast<unsigned>(ceil_div(rows, kRowsAtOnce)), a.heads);
  LATHE_RETURN_IF_ERROR(allow_shared(query_kernel<kPieces>, query_shared));
  query_kernel<kPieces><<<row_blocks, kThreads, query_shared, stream_of(ctx)>>>(a, row0, rows, latent_query);
  LATHE_RETURN_IF_ERROR(launched("sparse_mla queries"));
  LATHE_RETURN_IF_ERROR(allow_shared(attend_kernel<kPieces>, attend_shared(a)));
  attend_kernel<kPieces><<<dim3(static_cast<unsigned>(ceil_div(a.heads, kHeads)), static_cast<unsigned>(rows)), kThreads,
                           attend_shared(a), stream_of(ctx)>>>(a, row0, latent_query);
  LATHE_RETURN_IF_ERROR(launched("sparse_mla attention"));
  LATHE_RETURN_IF_ERROR(allow_shared(value_kernel, value_shared));
  value_kernel<<<row_blocks, kThreads, value_shared, stream_of(ctx)>>>(a, row0, rows, latent_query);
  return launched("sparse_mla values");
}

}  // namespace

bool sparse_mla_applies(const SparseMlaArgs& a) {
  return a.latent_dim <= kMostPieces * kThreads && a.qk <= 8192 && attend_shared(a) <= kMostShared;
}

Status sparse_mla(OpContext& ctx, const SparseMlaArgs& a) {
  if (a.latent.rows > 0) {
    latent_kernel<<<static_cast<unsigned>(a.latent.rows), 128, 0, stream_of(ctx)>>>(a);
    LATHE_RETURN_IF_ERROR(launched("sparse_mla latents"));
  }
  ArenaScope scope(*ctx.scratch);
  const int64_t row_floats = int64_t{a.heads} * a.latent_dim, rows = a.query.rows;
  const int64_t at_once = std::clamp<int64_t>(kScratchFloats / row_floats, 1, 32768);
  float* latent_query = ctx.scratch->take<float>(std::min(at_once, rows) * row_floats);
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    LATHE_RETURN_IF_ERROR(a.latent_dim <= kThreads       ? attend<1>(ctx, a, row, count, latent_query)
                          : a.latent_dim <= 2 * kThreads ? attend<2>(ctx, a, row, count, latent_query)
                                                         : attend<4>(ctx, a, row, count, latent_query));
  }
  return Status::ok();
}

}  // namespace lathe::cuda
