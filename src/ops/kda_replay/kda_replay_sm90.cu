#include <algorithm>

#include "ops/kda_prefill/kda_head_vectors.cuh"
#include "ops/kda_prefill/kda_state_stream.cuh"
#include "ops/kda_replay/kda_replay_sm90.cuh"

namespace lathe::sm90 {

namespace {

// As in the fused decode step: 8 warps stream states, two groups of 4 more have the vectors and the outputs. The
// streaming warps do S·k and S·q; what records add is a matter of vectors.
constexpr int kVectorThreads = kVectorGroups * kKdaSize;
constexpr int kThreads = 32 * kStateWarps + kVectorThreads;
template <int kRows>
constexpr int kBuffers = kRows == 1 ? 4 : 2;  // a multiple of the groups
constexpr int kLength = kReplayLength;
constexpr float kLn2 = 0.6931471805599453f;

template <int kRows>
constexpr int kSlots = kRows == 1 ? 5 : 4;

template <int kRows>
struct alignas(16) ReplayVectors {
  float k[kRows][kKdaSize], q[kRows][kKdaSize];  // decayed from S0 to their row
  float v[kRows][kKdaSize], gate[kRows][kKdaSize];
  float seen[kRows][kKdaSize], o[kRows][kKdaSize];             // S0·k, S0·q
  float decay[kKdaSize];                                       // of the committed records together, for a fold
  __nv_bfloat16 key[kLength][kKdaSize], d[kLength][kKdaSize];  // committed records
  float record_k[kRows][kLength], record_q[kRows][kLength];    // products of their keys with k and q
  float row_k[kRows][kRows], row_q[kRows][kRows];              // products of this step's earlier keys with them
  float record_partial[4][2 * kLength], row_partial[4][2 * kReplayRows];
  float partial[4][4];
  float beta[kRows], kq[kRows];
};

template <int kRows>
struct Shared {
  PieceSlots<float, kSlots<kRows>> pieces;
  ReplayVectors<kRows> head[kBuffers<kRows>];
  Barrier ready[kBuffers<kRows>], done[kBuffers<kRows>];
};

// A head of a sequence, and what the step does with it.
struct Task {
  int sequence, head, slot;
  int begin, rows, past;
  int committed, base;  // records before the step; where the step's begin

  __device__ bool fresh() const { return past == 0; }
  __device__ bool folds() const { return base < committed; }
  __device__ int64_t record(const KdaCall& call, int j) const {
    return ((int64_t{slot} * call.heads + head) * kLength + j) * kKdaSize;
  }
};

struct Work {
  KdaReplay replay;
  int heads, max_rows;

  __device__ int count() const { return replay.sequences * heads; }
  __device__ Task task(int item) const {
    Task t{item / heads, item % heads, 0, 0, 0, 1, 0, 0};
    t.slot = replay.slot[t.sequence];
    if (t.slot < 0) return t;
    t.committed = replay.cursor[t.slot];
    if (replay.flush) return t;
    t.begin = replay.start[t.sequence], t.rows = replay.start[t.sequence + 1] - t.begin;
    t.past = replay.past[t.sequence];
    if (t.past == 0) t.committed = 0;
    t.base = t.committed + t.rows > kLength ? 0 : t.committed;
    t.rows = min(t.rows, max_rows);
    return t;
  }
  __device__ bool is_real(const Task& t) const { return t.slot >= 0 && (replay.flush ? t.folds() : t.rows > 0); }
  // The first item from `item` on in this block's list that has something to do.
  __device__ int next_real(int item) const {
    while (item < count() && !is_real(task(item))) item += gridDim.x;
    return item;
  }
  __device__ int after(int item) const { return next_real(item + gridDim.x); }
};

// Adds the committed records to 8 rows of S0 and decays the sum.
template <int kRows>
__device__ void fold_piece(float4 (&s)[kPieceRows], const ReplayVectors<kRows>& head, int records, int first,
                           int lane) {
  for (int j = 0; j < records; ++j) {
    const float4 key = load_four(head.key[j], lane);
    const uint4 d = *reinterpret_cast<const uint4*>(head.d[j] + first);
    const uint32_t pairs[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int r = 0; r < kPieceRows; ++r) add_scaled(s[r], r % 2 ? high(pairs[r / 2]) : low(pairs[r / 2]), key);
  }
  const float4 decay = load_four(head.decay, lane);
#pragma unroll
  for (int r = 0; r < kPieceRows; ++r) s[r] = scaled(s[r], decay);
}

template <int kRows>
__device__ void read_piece(float* piece, const Task& task, ReplayVectors<kRows>& head, int first) {
  const int lane = threadIdx.x % 32;
  float4 s[kPieceRows];
#pragma unroll
  for (int r = 0; r < kPieceRows; ++r) {
    s[r] = load_four(piece + r * kKdaSize, lane);
    if (task.fresh()) s[r] = {};
  }
  if (task.folds()) fold_piece(s, head, task.committed, first, lane);
  if (task.folds() || task.fresh())
#pragma unroll
    for (int r = 0; r < kPieceRows; ++r) store_four(piece + r * kKdaSize, lane, s[r]);
#pragma unroll 1
  for (int row = 0; row < task.rows; ++row) {
    const float4 k = load_four(head.k[row], lane), q = load_four(head.q[row], lane);
    float sums[2 * kPieceRows];
#pragma unroll
    for (int r = 0; r < kPieceRows; ++r) sums[r] = dot(s[r], k), sums[kPieceRows + r] = dot(s[r], q);
    warp_sums<2 * kPieceRows>(sums);
    if (lane % 2 == 0) (lane < 16 ? head.seen : head.o)[row][first + lane % 16 / 2] = sums[0];
  }
}

template <int kRows>
__device__ void stream_states(const KdaCall& call, const Work& work, Shared<kRows>& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int mine = warp * kPieces * kPieceRows;
  auto piece_address = [&](int slot, int head, int piece) {
    return call.state + ((int64_t{slot} * call.heads + head) * kKdaSize + mine + piece * kPieceRows) * kKdaSize;
  };
  int asked_item = work.next_real(blockIdx.x), asked_piece = 0;
  auto next = [&]() -> const float* {
    if (asked_item >= work.count()) return nullptr;
    const float* from = piece_address(work.replay.slot[asked_item / work.heads], asked_item % work.heads, asked_piece);
    if (++asked_piece == kPieces) asked_piece = 0, asked_item = work.next_real(asked_item + gridDim.x);
    return from;
  };

  PieceStream<float, kSlots<kRows>, kSlots<kRows> - 1> stream(shared.pieces, warp);
  if (lane == 0) stream.start(next);
  uint32_t count = 0;
  for (int item = work.next_real(blockIdx.x); item < work.count(); item = work.next_real(item + gridDim.x), ++count) {
    const Task task = work.task(item);
    ReplayVectors<kRows>& head = shared.head[count % kBuffers<kRows>];
    wait(&shared.ready[count % kBuffers<kRows>], count / kBuffers<kRows> % 2);
#pragma unroll 1
    for (int p = 0; p < kPieces; ++p) {
      float* piece = stream.wait_piece();
      read_piece(piece, task, head, mine + p * kPieceRows);
      fence_for_bulk();
      __syncwarp();
      if (lane == 0)
        stream.finish(task.folds() || task.fresh() ? piece_address(task.slot, task.head, p) : nullptr, next);
      stream.advance();
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.done[count % kBuffers<kRows>]);
  }
  wait_stores_read<0>();
}

// Thread t's channel of a slot's committed records, and of the step's first row.
struct RawTask {
  __nv_bfloat16 key[kLength] = {}, d[kLength] = {};
  float log_gate = 0;
  RawHead row;
};

__device__ inline RawTask load_task(const KdaCall& call, const Work& work, const Task& task, int t) {
  RawTask raw;
#pragma unroll
  for (int j = 0; j < kLength; ++j)
    if (j < task.committed) {
      raw.key[j] = work.replay.ring_key[task.record(call, j) + t];
      raw.d[j] = work.replay.ring_d[task.record(call, j) + t];
    }
  if (task.committed) raw.log_gate = work.replay.ring_gate[task.record(call, task.committed - 1) + t];
  if (task.rows) raw.row = load_raw(call, task.begin, task.head, task.slot, task.past, t);
  return raw;
}

// Products of the keys of records and earlier rows with the k and q of `row`, all threads together.
template <int kRows>
__device__ void multiply_keys(const Task& task, const RawTask& raw, const float (&keys)[kRows], int row, float k,
                              float q, VectorThread thread, ReplayVectors<kRows>& head) {
  const int t = thread.t, warp = t / 32, lane = t % 32;
  float records[2 * kLength];
#pragma unroll
  for (int j = 0; j < kLength; ++j) {
    const float key = j < task.base ? __bfloat162float(raw.key[j]) : 0;
    records[j] = key * k, records[kLength + j] = key * q;
  }
  warp_sums<2 * kLength>(records);
  head.record_partial[warp][lane] = records[0];
  if constexpr (kRows > 1) {
    float rows[2 * kRows];
#pragma unroll
    for (int s = 0; s < kRows; ++s) rows[s] = keys[s] * k, rows[kRows + s] = keys[s] * q;
    warp_sums<2 * kRows>(rows);
    if (lane % 2 == 0) head.row_partial[warp][lane / 2] = rows[0];
  }
  thread.sync();
  if (t < 2 * kLength) {
    const float sum =
        head.record_partial[0][t] + head.record_partial[1][t] + head.record_partial[2][t] + head.record_partial[3][t];
    (t < kLength ? head.record_k : head.record_q)[row][t % kLength] = sum;
  } else if (kRows > 1 && t < 2 * kLength + 2 * kRows) {
    const int s = t - 2 * kLength;
    const float sum = head.row_partial[0][s] + head.row_partial[1][s] + head.row_partial[2][s] + head.row_partial[3][s];
    (s < kRows ? head.row_k : head.row_q)[row][s % kRows] = sum;
  }
  thread.sync();
}

template <int kRows>
__device__ void prepare(const KdaCall& call, const Work& work, const Task& task, const RawTask& raw,
                        VectorThread thread, ReplayVectors<kRows>& head) {
  const int t = thread.t;
#pragma unroll
  for (int j = 0; j < kLength; ++j)
    if (j < task.committed) head.key[j][t] = raw.key[j], head.d[j][t] = raw.d[j];
  float log2_gate = raw.log_gate * kLog2E;
  head.decay[t] = exp2_fast(log2_gate);
  if (task.folds()) log2_gate = 0;
  float keys[kRows] = {};  // of this step's rows
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= task.rows) break;
    const int row = task.begin + r, position = task.past + r;
    const RawHead x = r == 0 ? raw.row : load_raw(call, row, task.head, task.slot, position, t);
    push_raw(call, x, task.head, task.slot, position, t);
    const Activated a = activate_thread(call, x, thread, head.partial);
    log2_gate += a.log2_decay;
    const float decay = exp2_fast(log2_gate), k = a.k * decay, q = a.q * decay;
    head.k[r][t] = k, head.q[r][t] = q, head.v[r][t] = a.v, head.gate[r][t] = output_gate(x);
    if (t == 0) head.beta[r] = beta_of(x), head.kq[r] = a.kq;
    multiply_keys(task, raw, keys, r, k, q, thread, head);
    const __nv_bfloat16 key = __float2bfloat16_rn(a.k * exp2_fast(-log2_gate));
    keys[r] = __bfloat162float(key);
    work.replay.ring_key[task.record(call, task.base + r) + t] = key;
    work.replay.ring_gate[task.record(call, task.base + r) + t] = log2_gate * kLn2;
  }
}

template <int kRows>
__device__ void finish(const KdaCall& call, const Work& work, const Task& task, VectorThread thread,
                       ReplayVectors<kRows>& head) {
  const int t = thread.t;
  float d[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= task.rows) break;
    float seen = head.seen[r][t], o = head.o[r][t];
    for (int j = 0; j < task.base; ++j) {
      const float record = __bfloat162float(head.d[j][t]);
      seen = fmaf(record, head.record_k[r][j], seen), o = fmaf(record, head.record_q[r][j], o);
    }
#pragma unroll
    for (int s = 0; s < r; ++s) seen = fmaf(d[s], head.row_k[r][s], seen), o = fmaf(d[s], head.row_q[r][s], o);
    const float exact = head.beta[r] * (head.v[r][t] - seen);
    const __nv_bfloat16 stored = __float2bfloat16_rn(exact);
    d[r] = __bfloat162float(stored);
    work.replay.ring_d[task.record(call, task.base + r) + t] = stored;
    store_normed(call, fmaf(exact, head.kq[r], o), head.gate[r][t], task.begin + r, task.head, thread, head.partial);
  }
}

template <int kRows>
__device__ void prepare_and_finish(const KdaCall& call, const Work& work, Shared<kRows>& shared) {
  const VectorThread thread(threadIdx.x - 32 * kStateWarps);
  auto mine_after = [&](int item) { return item < work.count() ? work.after(work.after(item)) : item; };
  int first = work.next_real(blockIdx.x);
  if (thread.group == 1 && first < work.count()) first = work.after(first);
  int prepared = first;
  uint32_t prepared_count = thread.group;
  auto prepare_next = [&](const Task& task, const RawTask& raw) {
    prepare(call, work, task, raw, thread, shared.head[prepared_count % kBuffers<kRows>]);
    arrive(&shared.ready[prepared_count % kBuffers<kRows>]);
    prepared = mine_after(prepared), prepared_count += kVectorGroups;
  };
  for (int i = 0; i < kBuffers<kRows> / kVectorGroups && prepared < work.count(); ++i) {
    const Task task = work.task(prepared);
    prepare_next(task, load_task(call, work, task, thread.t));
  }
  uint32_t count = thread.group;
  for (int item = first; item < work.count(); item = mine_after(item), count += kVectorGroups) {
    const bool more = prepared < work.count();
    Task next_task{};
    RawTask raw;
    if (more) next_task = work.task(prepared), raw = load_task(call, work, next_task, thread.t);
    wait(&shared.done[count % kBuffers<kRows>], count / kBuffers<kRows> % 2);
    finish(call, work, work.task(item), thread, shared.head[count % kBuffers<kRows>]);
    if (more) prepare_next(next_task, raw);
  }
}

template <int kRows>
__global__ void __launch_bounds__(kThreads, 1) replay_kernel(KdaCall call, Work work) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared<kRows>& shared = *reinterpret_cast<Shared<kRows>*>(memory);
  if (threadIdx.x == 0) {
    for (int w = 0; w < kStateWarps; ++w)
      for (int s = 0; s < kSlots<kRows>; ++s) init_barrier(&shared.pieces.full[w][s], 1);
    for (int b = 0; b < kBuffers<kRows>; ++b)
      init_barrier(&shared.ready[b], kKdaSize), init_barrier(&shared.done[b], kStateWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32 * kStateWarps) {
    stream_states(call, work, shared);
    return;
  }
  if (!work.replay.flush && threadIdx.x < 32 * kStateWarps + kKdaSize)
    for (int item = blockIdx.x; item < work.count(); item += gridDim.x) {  // padding, and runs that are too long
      const int sequence = item / work.heads, end = work.replay.start[sequence + 1];
      const bool padding = work.replay.slot[sequence] < 0;
      for (int row = work.replay.start[sequence] + (padding ? 0 : kRows); row < end; ++row)
        fill_output(call, row, item % work.heads, padding ? 0 : __int_as_float(0x7fc00000));
    }
  prepare_and_finish(call, work, shared);
}

template <int kRows>
cudaError_t launch(const KdaCall& call, const Work& work, cudaStream_t stream) {
  constexpr int bytes = sizeof(Shared<kRows>);
  int blocks = 0;
  if (cudaError_t e = prepare_resident(replay_kernel<kRows>, bytes, work.replay.sequences * work.heads, blocks))
    return e;
  replay_kernel<kRows><<<blocks, kThreads, bytes, stream>>>(call, work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_kda_replay(const KdaCall& call, const KdaReplay& replay, bool single, cudaStream_t stream) {
  if (replay.sequences == 0) return cudaSuccess;
  const Work work{replay, call.heads, single ? 1 : kReplayRows};
  return single ? launch<1>(call, work, stream) : launch<kReplayRows>(call, work, stream);
}

}  // namespace lathe::sm90
