#pragma once

#include "ops/kda_prefill/kda_chunk.cuh"

// The second launch of a prefill: two blocks, a cluster, carry the state of one head of one sequence over its chunks,
// each for half of V. Each of 4 warps keeps 16 rows of V of the state in registers, as the accumulators of its
// products, and never waits for the others; 4 more warps bring factors and norm and gate the outputs, for which the two
// blocks exchange their sums of squares.
namespace lathe::sm90 {

constexpr int kCarryWarps = 4;
constexpr int kCarryTiles = kHalfSize / 16 / kCarryWarps;  // tiles of 16 rows of V a warp
constexpr int kOutputWarps = 4;
constexpr int kRecurrenceThreads = 32 * (kCarryWarps + kOutputWarps);
constexpr int kStages = 6;
constexpr int kOutputs = 2;    // chunks whose outputs lie in shared memory
constexpr int kExchanges = 4;  // chunks whose squares are on their way between the blocks: a block is 2 ahead at most

// A range of chunk numbers, whose factors lie in the workspace.
struct ChunkSlice {
  ChunkFactors* data;
  int64_t first, last;
  __device__ ChunkFactors* factors(int64_t number, int head, int heads) const {
    return data + (number - first) * heads + head;
  }
};

struct RecurrenceStage {
  ChunkKeys keys;
  __nv_bfloat16 value[kKdaChunk * kHalfSize];
};

struct RecurrenceShared {
  RecurrenceStage stage[kStages];
  __nv_bfloat16 o[kOutputs][kKdaChunk * kHalfSize];  // cells permuted as in ChunkFactors
  float other_squares[kExchanges][kKdaChunk];        // written by the other block
  Barrier full[kStages], o_ready[kOutputs], o_free[kOutputs], other_ready[kExchanges][kOutputWarps];
};

// The block's place in the grid.
struct Lane {
  int head, half;  // of V
  int64_t slot;
};

// What a block does of its sequence in this slice.
struct Span {
  int64_t number;  // of the first chunk
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
__device__ void each_pair(StateTiles& s, int half, int warp, F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kCarryTiles; ++m)
#pragma unroll
    for (int low = 0; low < 2; ++low) {
      const int row = half * kHalfSize + (warp * kCarryTiles + m) * 16 + 8 * low + lane / 4;
#pragma unroll
      for (int n = 0; n < kKdaSize / 8; ++n) f(&s[m][n][2 * low], row * kKdaSize + 8 * n + lane % 4 * 2);
    }
}

__device__ inline void store_state(StateTiles& s, int half, int warp, float* to) {
  each_pair(s, half, warp, [&](float* pair, int at) { *reinterpret_cast<float2*>(to + at) = {pair[0], pair[1]}; });
}

// Where a warp's lanes find tiles of a matrix of 16 tokens: `wide` for 16 tokens by 16 channels with tokens as columns
// of the product, `tall` with tokens as its depth. Cells repeat after 128 bytes.
struct TileOffsets {
  int wide[4], tall[4], solve, value;  // elements

  __device__ explicit TileOffsets(int warp) {
    const int lane = threadIdx.x % 32;
    const int wide_row = lane % 8 + lane / 16 * 8, wide_cell = lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      wide[i] = cell_offset<kKdaSize>(wide_row, 2 * i + wide_cell);
      tall[i] = cell_offset<kKdaSize>(lane % 16, 2 * i + lane / 16);
    }
    solve = wide_row * kKdaChunk + wide_cell * 8;
    value = cell_offset<kHalfSize>(wide_row, warp * 2 + wide_cell);
  }
  __device__ int wide_at(int step) const { return wide[step % 4] + step / 4 * 64; }
  __device__ int tall_at(int step) const { return tall[step % 4] + step / 4 * 64; }
};

// S through one chunk; outputs into `o`.
__device__ inline void carry_chunk(StateTiles& s, const RecurrenceStage& stage, const TileOffsets& at,
                                   __nv_bfloat16* o) {
  static_assert(kCarryTiles == 1);
  const ChunkKeys& f = stage.keys;
  const int lane = threadIdx.x % 32;
  float seen[kCarryTiles][2][2][4] = {},
        out[kCarryTiles][2][4] = {};  // seen: even and odd steps apart, for shorter chains
#pragma unroll
  for (int step = 0; step < kKdaSize / 16; ++step) {
    uint32_t key[4], query[4];
    load_tiles(key, shared_address(f.key_decayed + at.wide_at(step)));
    load_tiles(query, shared_address(f.query + at.wide_at(step)));
#pragma unroll
    for (int m = 0; m < kCarryTiles; ++m) {
      const float(&left)[4] = s[m][2 * step], (&right)[4] = s[m][2 * step + 1];
      const uint32_t a[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                             pack(right[2], right[3])};
      multiply(seen[m][step % 2][0], a, key[0], key[1]);
      multiply(seen[m][step % 2][1], a, key[2], key[3]);
      multiply(out[m][0], a, query[0], query[1]);
      multiply(out[m][1], a, query[2], query[3]);
    }
  }
  uint32_t solve[4], product[4], d[kCarryTiles][4];
  load_tiles(solve, shared_address(f.solve + at.solve));
  load_tiles(product, shared_address(f.product + at.solve));
#pragma unroll
  for (int m = 0; m < kCarryTiles; ++m) {
    uint32_t v[4], x[4];
    load_tiles_transposed(v, shared_address(stage.value + at.value));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float *even = &seen[m][0][i / 2][i % 2 * 2], *odd = &seen[m][1][i / 2][i % 2 * 2];
      x[i] = pack(low(v[i]) - (even[0] + odd[0]), high(v[i]) - (even[1] + odd[1]));
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
    store_tiles_transposed(shared_address(o + at.value), rows);
  }
#pragma unroll
  for (int n = 0; n < kKdaSize / 8; n += 2) {
    uint32_t key[4];
    load_tiles_transposed(key, shared_address(f.key_raised + at.tall_at(n / 2)));
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

__device__ inline void carry_state(const KdaCall& call, const KdaRuns& runs, const Span& span, const Lane& lane_of,
                                   RecurrenceShared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = lane_of.half;
  auto state = [&](int64_t slot) { return call.state + (slot * call.heads + lane_of.head) * kKdaSize * kKdaSize; };
  StateTiles s;
  if (span.past == 0 && span.first == span.begin)
    each_pair(s, half, warp, [&](float* pair, int) { pair[0] = pair[1] = 0; });
  else
    each_pair(s, half, warp, [from = state(lane_of.slot)](float* pair, int at) {
      const float2 x = *reinterpret_cast<const float2*>(from + at);
      pair[0] = x.x, pair[1] = x.y;
    });
  const TileOffsets offsets(warp);
  Checkpoints checkpoints(runs, span.first);
#pragma unroll 1
  for (int c = 0; c < span.chunks; ++c) {
    const int stage = c % kStages, buffer = c % kOutputs;
    wait(&shared.full[stage], c / kStages % 2);
    if (c >= kOutputs) wait(&shared.o_free[buffer], (c / kOutputs - 1) % 2);
    carry_chunk(s, shared.stage[stage], offsets, shared.o[buffer]);
    __syncwarp();
    if (lane == 0) arrive(&shared.o_ready[buffer]);
    checkpoints.at(span.last_row(c), [&](int32_t to) { store_state(s, half, warp, state(to)); });
  }
  store_state(s, half, warp, state(lane_of.slot));
}

// One thread brings a chunk's factors.
__device__ inline void bring_chunk(const ChunkSlice& slice, const Span& span, const Lane& lane_of, int heads, int chunk,
                                   RecurrenceShared& shared) {
  if (chunk >= span.chunks) return;
  RecurrenceStage& stage = shared.stage[chunk % kStages];
  Barrier* full = &shared.full[chunk % kStages];
  const ChunkFactors& f = *slice.factors(span.number + chunk, lane_of.head, heads);
  arrive_expecting(full, sizeof stage);
  bulk_load(&stage.keys, &f.keys, sizeof stage.keys, full);
  bulk_load(stage.value, f.value[lane_of.half], sizeof stage.value, full);
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

// An output thread has 8 channels of one token of each chunk. The gates of the next 4 chunks are under way, and a
// chunk's outputs wait in registers for the other block's squares while the next chunk's are summed.
constexpr int kGatesAhead = 4;

struct OutputThread {
  int t, token, cell;
  int64_t column;  // of y
  float weight[8];

  __device__ OutputThread(const KdaCall& call, const Lane& lane_of, int t) : t(t), token(t / 8), cell(t % 8) {
    const int channel = lane_of.half * kHalfSize + 8 * cell;
    column = int64_t{lane_of.head} * kKdaSize + channel;
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[i] = call.norm_weight[channel + i];
  }
};

struct ChunkOutputs {
  uint4 o;
  float squares;
};

__device__ inline uint4 load_gate(const KdaCall& call, const Span& span, const OutputThread& thread, int chunk) {
  if (chunk >= span.chunks || thread.token >= span.rows(chunk)) return {};
  const int64_t row = span.first + int64_t{chunk} * kKdaChunk + thread.token;
  return *reinterpret_cast<const uint4*>(call.gate + row * call.gate_stride + thread.column);
}

// Takes a chunk's outputs out of shared memory and tells the other block their squares.
__device__ inline ChunkOutputs sum_squares(const OutputThread& thread, int half, int chunk, RecurrenceShared& shared) {
  const int buffer = chunk % kOutputs, exchange = chunk % kExchanges, warp = thread.t / 32;
  Barrier* ready = &shared.other_ready[exchange][warp];
  const uint4 o = *reinterpret_cast<const uint4*>(shared.o[buffer] + cell_offset<kHalfSize>(thread.token, thread.cell));
  const uint32_t pairs[4] = {o.x, o.y, o.z, o.w};
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    squares = fmaf(low(pairs[i]), low(pairs[i]), fmaf(high(pairs[i]), high(pairs[i]), squares));
#pragma unroll
  for (int offset = 4; offset; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
  if (thread.cell == 0)
    store_remote(remote_address(&shared.other_squares[exchange][thread.token], 1 - half), squares,
                 remote_address(ready, 1 - half));
  __syncwarp();
  if (thread.t % 32 == 0)
    arrive(&shared.o_free[buffer]), arrive_expecting(ready, kKdaChunk / kOutputWarps * sizeof(float));
  return {o, squares};
}

__device__ inline void store_normed_chunk(const KdaCall& call, const Span& span, const OutputThread& thread, int half,
                                          int chunk, RecurrenceShared& shared, const ChunkOutputs& from, uint4 gate) {
  const int exchange = chunk % kExchanges;
  wait(&shared.other_ready[exchange][thread.t / 32], chunk / kExchanges % 2);
  const float other = shared.other_squares[exchange][thread.token];
  const float all = half == 0 ? from.squares + other : other + from.squares;
  const float scale = rsqrtf(all * (1.0f / kKdaSize) + call.norm_eps);
  const uint32_t o[4] = {from.o.x, from.o.y, from.o.z, from.o.w}, g[4] = {gate.x, gate.y, gate.z, gate.w};
  uint32_t y[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    y[i] = pack(low(o[i]) * scale * thread.weight[2 * i] * sigmoid(low(g[i])),
                high(o[i]) * scale * thread.weight[2 * i + 1] * sigmoid(high(g[i])));
  if (thread.token >= span.rows(chunk)) return;
  const int64_t row = span.first + int64_t{chunk} * kKdaChunk + thread.token;
  *reinterpret_cast<uint4*>(call.y + row * call.y_stride + thread.column) = {y[0], y[1], y[2], y[3]};
}

__device__ inline void norm_outputs(const KdaCall& call, const KdaRuns& runs, const ChunkSlice& slice, const Span& span,
                                    const Lane& lane_of, int t, RecurrenceShared& shared) {
  const OutputThread thread(call, lane_of, t);
  const int half = lane_of.half;
  auto bring = [&](int chunk) {
    if (t == 0) bring_chunk(slice, span, lane_of, call.heads, chunk, shared);
  };
  Checkpoints checkpoints(runs, span.first);
  for (int c = 0; c < kStages; ++c) bring(c);
  uint4 gate[kGatesAhead];
  ChunkOutputs outputs[2];
#pragma unroll
  for (int i = 0; i < kGatesAhead; ++i) gate[i] = load_gate(call, span, thread, i);
#pragma unroll 1
  for (int first = 0; first <= span.chunks; first += kGatesAhead)  // unrolled: registers by fixed numbers
#pragma unroll
    for (int i = 0; i < kGatesAhead; ++i) {
      const int c = first + i, last = (i + kGatesAhead - 1) % kGatesAhead;
      if (c > span.chunks) break;
      if (c < span.chunks) {
        wait(&shared.o_ready[c % kOutputs], c / kOutputs % 2);  // and so the chunk's stage is free
        bring(c + kStages);
        outputs[i % 2] = sum_squares(thread, half, c, shared);
      }
      if (c > 0) {
        store_normed_chunk(call, span, thread, half, c - 1, shared, outputs[1 - i % 2], gate[last]);
        gate[last] = load_gate(call, span, thread, c - 1 + kGatesAhead);
      }
      if (half == 0 && c < span.chunks)
        checkpoints.at(span.last_row(c), [&](int32_t to) {
          store_ring(call, span, lane_of.head, lane_of.slot, to, span.last_row(c), t);
        });
    }
  if (half == 0 && span.ends) store_ring(call, span, lane_of.head, lane_of.slot, lane_of.slot, span.last - 1, t);
}

// kBlocks: of a processor, for the registers they have.
template <int kBlocks>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kRecurrenceThreads, kBlocks)
    recurrence_kernel(KdaCall call, KdaRuns runs, ChunkSlice slice) {
  extern __shared__ __align__(128) unsigned char memory[];
  RecurrenceShared& shared = *reinterpret_cast<RecurrenceShared*>(memory);
  const int sequence = blockIdx.y, head = blockIdx.x / 2, half = blockIdx.x % 2;
  const Lane lane_of{head, half, runs.slot[sequence]};
  const Span span = find_span(runs, slice, sequence);
  if (span.chunks == 0) return;
  if (lane_of.slot < 0) {
    for (int32_t row = span.first + half; row < span.last; row += 2)
      if (threadIdx.x < kKdaSize) call.y[row * call.y_stride + head * kKdaSize + threadIdx.x] = __nv_bfloat16{};
    return;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(&shared.full[i], 1);
    for (int i = 0; i < kOutputs; ++i) {
      init_barrier(&shared.o_ready[i], kCarryWarps), init_barrier(&shared.o_free[i], kOutputWarps);
    }
    for (int i = 0; i < kExchanges; ++i)
      for (int w = 0; w < kOutputWarps; ++w) init_barrier(&shared.other_ready[i][w], 1);
    fence_barrier_init();
  }
  sync_cluster();
  if (threadIdx.x < 32 * kCarryWarps)
    carry_state(call, runs, span, lane_of, shared);
  else
    norm_outputs(call, runs, slice, span, lane_of, threadIdx.x - 32 * kCarryWarps, shared);
  sync_cluster();  // the other block may still write here
}

}  // namespace lathe::sm90
