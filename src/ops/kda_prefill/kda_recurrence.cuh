#pragma once

#include "ops/kda_prefill/kda_chunk.cuh"

// The second launch of a prefill: a block carries the state of one head of one sequence over its chunks. Each of 4 warps
// keeps 32 rows of V of the state in registers, as the accumulators of its products, and never waits for the others; 4
// more warps bring factors and norm and gate the outputs.
namespace lathe::sm90 {

constexpr int kCarryWarps = 4;
constexpr int kCarryTiles = kKdaSize / 16 / kCarryWarps;  // tiles of 16 rows of V a warp
constexpr int kOutputWarps = 4;
constexpr int kRecurrenceThreads = 32 * (kCarryWarps + kOutputWarps);
constexpr int kStages = 4;

// A range of chunk numbers, whose factors lie in the workspace.
struct ChunkSlice {
  ChunkFactors* data;
  int64_t first, last;
  __device__ ChunkFactors* factors(int64_t number, int head, int heads) const {
    return data + (number - first) * heads + head;
  }
};

struct RecurrenceShared {
  ChunkFactors stage[kStages];
  __nv_bfloat16 o[2][kKdaChunk * kKdaSize];  // cells permuted as in ChunkFactors
  Barrier full[kStages], o_ready[2], o_free[2];
};

// What a block does of its sequence in this slice.
struct Span {
  int64_t number;       // of the first chunk
  int chunks;
  int32_t first, last;  // rows
  int32_t begin, past;  // of the run: first row and its position
  bool ends;            // with the run

  __device__ int rows(int chunk) const {
    const int left = last - first - chunk * kKdaChunk;
    return left < kKdaChunk ? left : kKdaChunk;
  }
  __device__ int32_t last_row(int chunk) const { return first + chunk * kKdaChunk + rows(chunk) - 1; }
};

__device__ inline Span find_span(const KdaRuns& runs, const ChunkSlice& slice, int sequence) {
  const int32_t begin = runs.start[sequence], end = runs.start[sequence + 1];
  const int64_t base = chunk_base(begin, sequence), all = (end - begin + kKdaChunk - 1) / kKdaChunk;
  const int64_t from = slice.first > base ? slice.first - base : 0;
  const int64_t to = slice.last - base < all ? slice.last - base : all;
  Span s{base + from, from < to ? static_cast<int>(to - from) : 0, 0, 0, begin, runs.past[sequence], to == all};
  s.first = begin + static_cast<int32_t>(from) * kKdaChunk;
  s.last = s.ends ? end : begin + static_cast<int32_t>(to) * kKdaChunk;
  return s;
}

// Goes through the checkpoints that fall on ends of chunks.
class Checkpoints {
 public:
  __device__ Checkpoints(const KdaRuns& runs, int32_t row) : runs_(runs) {
    int end = runs.checkpoints;
    while (next_ < end) {
      const int middle = (next_ + end) / 2;
      if (runs.checkpoint_row[middle] < row)
        next_ = middle + 1;
      else
        end = middle;
    }
  }
  // f(slot) for each checkpoint after that row.
  template <class F>
  __device__ void at(int32_t row, F&& f) {
    for (; next_ < runs_.checkpoints && runs_.checkpoint_row[next_] <= row; ++next_)
      if (runs_.checkpoint_row[next_] == row) f(runs_.checkpoint_slot[next_]);
  }

 private:
  const KdaRuns& runs_;
  int next_ = 0;
};

// A warp's rows of the state, as fragments: tile m has rows 16m .. 16m + 15, columns of 8 by 8.
using StateTiles = float[kCarryTiles][kKdaSize / 8][4];

// f(fragment pair, its offset in the state [V, K])
template <class F>
__device__ void each_pair(StateTiles& s, int warp, F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kCarryTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (warp * kCarryTiles + m) * 16 + 8 * half + lane / 4;
#pragma unroll
      for (int n = 0; n < kKdaSize / 8; ++n) f(&s[m][n][2 * half], row * kKdaSize + 8 * n + lane % 4 * 2);
    }
}

__device__ inline void store_state(StateTiles& s, int warp, float* to) {
  each_pair(s, warp, [&](float* pair, int at) { *reinterpret_cast<float2*>(to + at) = {pair[0], pair[1]}; });
}

// S through one chunk; outputs into `o`.
__device__ inline void carry_chunk(StateTiles& s, const ChunkFactors& f, int warp, __nv_bfloat16* o) {
  const int lane = threadIdx.x % 32;
  const int wide_row = lane % 8 + lane / 16 * 8, wide_cell = lane / 8 % 2, tall_row = lane % 16, tall_cell = lane / 16;
  float seen[kCarryTiles][2][4] = {}, out[kCarryTiles][2][4] = {};
#pragma unroll
  for (int step = 0; step < kKdaSize / 16; ++step) {
    uint32_t key[4], query[4];
    load_tiles(key, shared_address(f.key_decayed + cell_offset(wide_row, 2 * step + wide_cell)));
    load_tiles(query, shared_address(f.query + cell_offset(wide_row, 2 * step + wide_cell)));
#pragma unroll
    for (int m = 0; m < kCarryTiles; ++m) {
      const float(&left)[4] = s[m][2 * step], (&right)[4] = s[m][2 * step + 1];
      const uint32_t a[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                             pack(right[2], right[3])};
      multiply(seen[m][0], a, key[0], key[1]);
      multiply(seen[m][1], a, key[2], key[3]);
      multiply(out[m][0], a, query[0], query[1]);
      multiply(out[m][1], a, query[2], query[3]);
    }
  }
  uint32_t solve[4], product[4], d[kCarryTiles][4];
  load_tiles(solve, shared_address(f.solve + wide_row * kKdaChunk + wide_cell * 8));
  load_tiles(product, shared_address(f.product + wide_row * kKdaChunk + wide_cell * 8));
#pragma unroll
  for (int m = 0; m < kCarryTiles; ++m) {
    const int place = cell_offset(wide_row, (warp * kCarryTiles + m) * 2 + wide_cell);
    uint32_t v[4], x[4];
    load_tiles_transposed(v, shared_address(f.value + place));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* c = &seen[m][i / 2][i % 2 * 2];
      x[i] = pack(low(v[i]) - c[0], high(v[i]) - c[1]);
    }
    float solved[2][4] = {};
    multiply(solved[0], x, solve[0], solve[1]);
    multiply(solved[1], x, solve[2], solve[3]);
#pragma unroll
    for (int i = 0; i < 4; ++i) d[m][i] = pack(solved[i / 2][i % 2 * 2], solved[i / 2][i % 2 * 2 + 1]);
    multiply(out[m][0], d[m], product[0], product[1]);
    multiply(out[m][1], d[m], product[2], product[3]);
    uint32_t rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = pack(out[m][i / 2][i % 2 * 2], out[m][i / 2][i % 2 * 2 + 1]);
    store_tiles_transposed(shared_address(o + place), rows);
  }
#pragma unroll
  for (int n = 0; n < kKdaSize / 8; n += 2) {
    uint32_t key[4];
    load_tiles_transposed(key, shared_address(f.key_raised + cell_offset(tall_row, n + tall_cell)));
    const float2 left = *reinterpret_cast<const float2*>(f.decay + 8 * n + lane % 4 * 2),
                 right = *reinterpret_cast<const float2*>(f.decay + 8 * n + 8 + lane % 4 * 2);
#pragma unroll
    for (int m = 0; m < kCarryTiles; ++m) {
      multiply(s[m][n], d[m], key[0], key[1]);
      multiply(s[m][n + 1], d[m], key[2], key[3]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[m][n][2 * half] *= left.x, s[m][n][2 * half + 1] *= left.y;
        s[m][n + 1][2 * half] *= right.x, s[m][n + 1][2 * half + 1] *= right.y;
      }
    }
  }
}

__device__ inline void carry_state(const KdaCall& call, const KdaRuns& runs, const Span& span, int head, int64_t slot,
                                   RecurrenceShared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto state = [&](int64_t of) { return call.state + (of * call.heads + head) * kKdaSize * kKdaSize; };
  StateTiles s;
  if (span.past == 0 && span.first == span.begin)
    each_pair(s, warp, [&](float* pair, int) { pair[0] = pair[1] = 0; });
  else
    each_pair(s, warp, [from = state(slot)](float* pair, int at) {
      const float2 x = *reinterpret_cast<const float2*>(from + at);
      pair[0] = x.x, pair[1] = x.y;
    });
  Checkpoints checkpoints(runs, span.first);
#pragma unroll 1
  for (int c = 0; c < span.chunks; ++c) {
    const int stage = c % kStages, buffer = c % 2;
    wait(&shared.full[stage], c / kStages % 2);
    if (c >= 2) wait(&shared.o_free[buffer], (c / 2 - 1) % 2);
    carry_chunk(s, shared.stage[stage], warp, shared.o[buffer]);
    __syncwarp();
    if (lane == 0) arrive(&shared.o_ready[buffer]);
    checkpoints.at(span.last_row(c), [&](int32_t to) { store_state(s, warp, state(to)); });
  }
  store_state(s, warp, state(slot));
}

__device__ inline void bring_factors(const ChunkSlice& slice, const Span& span, int chunk, int head, int heads,
                                     RecurrenceShared& shared) {
  if (chunk >= span.chunks) return;
  const int stage = chunk % kStages;
  arrive_expecting(&shared.full[stage], sizeof(ChunkFactors));
  bulk_load(&shared.stage[stage], slice.factors(span.number + chunk, head, heads), sizeof(ChunkFactors),
            &shared.full[stage]);
}

// The convolution's ring as it is after the run's row `row`, for the channels of a head. Rows from before the run are
// copied where `to` is another slot.
__device__ inline void store_ring(const KdaCall& call, const Span& span, int head, int64_t slot, int64_t to,
                                  int32_t row, int t) {
  const int32_t position = span.past + row - span.begin;
  for (int back = 0; back < call.ring; ++back) {
    const int32_t at = position - back;
    if (at < span.past && to == slot) break;
    const int ring_row = ((at % call.ring) + call.ring) % call.ring;
    for (int part = 0; part < 3; ++part) {
      const int64_t channel = (int64_t{part} * call.heads + head) * kKdaSize + t, channels = channels_of(call);
      call.conv[(to * call.ring + ring_row) * channels + channel] =
          at >= span.past ? call.qkv[(row - back) * call.qkv_stride + channel]
                          : call.conv[(slot * call.ring + ring_row) * channels + channel];
    }
  }
}

__device__ inline void norm_outputs(const KdaCall& call, const KdaRuns& runs, const ChunkSlice& slice, const Span& span,
                                    int head, int64_t slot, int t, RecurrenceShared& shared) {
  const int warp = t / 32, lane = t % 32, column = head * kKdaSize + 4 * lane;
  const float4 weight = *reinterpret_cast<const float4*>(call.norm_weight + 4 * lane);
  constexpr int kTokens = kKdaChunk / kOutputWarps;
  Checkpoints checkpoints(runs, span.first);
  if (t == 0)
    for (int c = 0; c < kStages; ++c) bring_factors(slice, span, c, head, call.heads, shared);
  for (int c = 0; c < span.chunks; ++c) {
    const int buffer = c % 2, rows = span.rows(c);
    const int64_t first = span.first + c * kKdaChunk;
    uint2 gate[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = warp + kOutputWarps * i;
      if (token < rows)
        gate[i] = *reinterpret_cast<const uint2*>(call.gate + (first + token) * call.gate_stride + column);
    }
    wait(&shared.o_ready[buffer], c / 2 % 2);  // and so the chunk's stage is free
    if (t == 0) bring_factors(slice, span, c + kStages, head, call.heads, shared);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = warp + kOutputWarps * i;
      if (token >= rows) break;
      const uint2 pairs =
          *reinterpret_cast<const uint2*>(shared.o[buffer] + cell_offset(token, lane / 2) + lane % 2 * 4);
      const float4 o{low(pairs.x), high(pairs.x), low(pairs.y), high(pairs.y)};
      const float squares = warp_sum(fmaf(o.x, o.x, fmaf(o.y, o.y, fmaf(o.z, o.z, o.w * o.w))));
      const float scale = rsqrtf(squares * (1.0f / kKdaSize) + call.norm_eps);
      const uint2 y{pack(o.x * scale * weight.x * sigmoid(low(gate[i].x)), o.y * scale * weight.y * sigmoid(high(gate[i].x))),
                    pack(o.z * scale * weight.z * sigmoid(low(gate[i].y)), o.w * scale * weight.w * sigmoid(high(gate[i].y)))};
      *reinterpret_cast<uint2*>(call.y + (first + token) * call.y_stride + column) = y;
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.o_free[buffer]);
    checkpoints.at(span.last_row(c), [&](int32_t to) { store_ring(call, span, head, slot, to, span.last_row(c), t); });
  }
  if (span.ends) store_ring(call, span, head, slot, slot, span.last - 1, t);
}

__global__ void __launch_bounds__(kRecurrenceThreads, 1)
    recurrence_kernel(KdaCall call, KdaRuns runs, ChunkSlice slice) {
  extern __shared__ __align__(128) unsigned char memory[];
  RecurrenceShared& shared = *reinterpret_cast<RecurrenceShared*>(memory);
  const int head = blockIdx.x, sequence = blockIdx.y;
  const Span span = find_span(runs, slice, sequence);
  if (span.chunks == 0) return;
  const int64_t slot = runs.slot[sequence];
  if (slot < 0) {
    for (int32_t row = span.first; row < span.last; ++row)
      if (threadIdx.x < kKdaSize) call.y[row * call.y_stride + head * kKdaSize + threadIdx.x] = __nv_bfloat16{};
    return;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(&shared.full[i], 1);
    for (int i = 0; i < 2; ++i)
      init_barrier(&shared.o_ready[i], kCarryWarps), init_barrier(&shared.o_free[i], kOutputWarps);
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kCarryWarps)
    carry_state(call, runs, span, head, slot, shared);
  else
    norm_outputs(call, runs, slice, span, head, slot, threadIdx.x - 32 * kCarryWarps, shared);
}

}  // namespace lathe::sm90
