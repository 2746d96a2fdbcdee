#include <algorithm>

#include "ops/kda_decode/kda_decode_sm90.cuh"
#include "ops/kda_prefill/kda_head_vectors.cuh"
#include "ops/kda_prefill/kda_state_stream.cuh"

namespace lathe::sm90 {

namespace {

// A block is persistent: 8 warps stream states; two groups of 4 more, which take turns, are ahead with the next heads'
// vectors and behind with the norms of the last ones.
constexpr int kVectorThreads = kVectorGroups * kKdaSize;
constexpr int kThreads = 32 * kStateWarps + kVectorThreads;
constexpr int kBuffers = 4;

template <class State>
constexpr int kSlots = sizeof(State) == 4 ? 6 : 8;
template <class State>
constexpr int kAhead = kSlots<State> - 2;

template <class State>
struct Shared {
  PieceSlots<State, kSlots<State>> pieces;
  HeadVectors head[kBuffers];
  Barrier ready[kBuffers], done[kBuffers];  // vectors are there; o is there
};

struct Work {
  const int32_t *past, *slot;
  int rows, heads;

  __device__ int count() const { return rows * heads; }
  __device__ int row(int item) const { return item / heads; }
  __device__ int head(int item) const { return item % heads; }
  // The first item from `item` on in this block's list that has a slot.
  __device__ int next_real(int item) const {
    while (item < count() && slot[row(item)] < 0) item += gridDim.x;
    return item;
  }
  __device__ int after(int item) const { return next_real(item + gridDim.x); }
};

// S = S·Diag(a), then d and o of 8 rows of V, then S + d·kᵀ; o into `o`.
template <class State>
__device__ void step_piece(State* piece, bool fresh, const HeadVectors& head, float4 k, float4 q, float4 a, int first,
                           float* o) {
  const int lane = threadIdx.x % 32;
  float4 s[kPieceRows];
  float sums[2 * kPieceRows];
#pragma unroll
  for (int r = 0; r < kPieceRows; ++r) {
    s[r] = scaled(load_four(piece + r * kKdaSize, lane), a);
    if (fresh) s[r] = {};
    sums[r] = dot(s[r], k);
    sums[kPieceRows + r] = dot(s[r], q);
  }
  warp_sums<2 * kPieceRows>(sums);  // lanes 2r and 2r + 1: S~·k of row r; 16 lanes further: S~·q
  const int row = first + lane % 16 / 2;
  const float d = __shfl_sync(~0u, head.beta * (head.v[row] - sums[0]), lane % 16);
  if (lane >= 16 && lane % 2 == 0) o[row] = fmaf(d, head.kq, sums[0]);
#pragma unroll
  for (int r = 0; r < kPieceRows; ++r) {
    add_scaled(s[r], __shfl_sync(~0u, d, 2 * r), k);
    store_four(piece + r * kKdaSize, lane, s[r]);
  }
}

template <class State>
__device__ void stream_states(const KdaCall& call, const Work& work, Shared<State>& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int mine = warp * kPieces * kPieceRows;  // first row of V
  State* const states = reinterpret_cast<State*>(call.state);
  auto piece_address = [&](int item, int piece) {
    const int64_t head = int64_t{work.slot[work.row(item)]} * call.heads + work.head(item);
    return states + (head * kKdaSize + mine + piece * kPieceRows) * kKdaSize;
  };
  int asked_item = work.next_real(blockIdx.x), asked_piece = 0;
  auto next = [&]() -> const State* {
    if (asked_item >= work.count()) return nullptr;
    const State* from = piece_address(asked_item, asked_piece);
    if (++asked_piece == kPieces) asked_piece = 0, asked_item = work.next_real(asked_item + gridDim.x);
    return from;
  };

  PieceStream<State, kSlots<State>, kAhead<State>> stream(shared.pieces, warp);
  if (lane == 0) stream.start(next);
  uint32_t count = 0;
  for (int item = work.next_real(blockIdx.x); item < work.count(); item = work.next_real(item + gridDim.x), ++count) {
    HeadVectors& head = shared.head[count % kBuffers];
    const bool fresh = work.past[work.row(item)] == 0;
    wait(&shared.ready[count % kBuffers], count / kBuffers % 2);
    const float4 k = load_four(head.k, lane), q = load_four(head.q, lane), a = load_four(head.a, lane);
#pragma unroll 1
    for (int p = 0; p < kPieces; ++p) {
      State* piece = stream.wait_piece();
      step_piece(piece, fresh, head, k, q, a, mine + p * kPieceRows, head.o);
      fence_for_bulk();
      __syncwarp();
      if (lane == 0) stream.finish(piece_address(item, p), next);
      stream.advance();
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.done[count % kBuffers]);
  }
  wait_stores_read<0>();
}

// A group's items are every other of the block's; item n of the block uses buffer n % kBuffers.
template <class State>
__device__ void prepare_and_finish(const KdaCall& call, const Work& work, Shared<State>& shared) {
  const VectorThread thread(threadIdx.x - 32 * kStateWarps);
  const int t = thread.t;
  auto mine_after = [&](int item) { return item < work.count() ? work.after(work.after(item)) : item; };
  int first = work.next_real(blockIdx.x);
  if (thread.group == 1 && first < work.count()) first = work.after(first);
  int prepared = first;
  uint32_t prepared_count = thread.group;
  auto load = [&]() {
    const int row = work.row(prepared);
    return load_raw(call, row, work.head(prepared), work.slot[row], work.past[row], t);
  };
  auto prepare = [&](const RawHead& raw) {
    const int row = work.row(prepared);
    push_raw(call, raw, work.head(prepared), work.slot[row], work.past[row], t);
    HeadVectors& head = shared.head[prepared_count % kBuffers];
    activate(call, raw, thread, head);
    arrive(&shared.ready[prepared_count % kBuffers]);
    prepared = mine_after(prepared), prepared_count += kVectorGroups;
  };
  for (int i = 0; i < kBuffers / kVectorGroups && prepared < work.count(); ++i) prepare(load());

  uint32_t count = thread.group;
  for (int item = first; item < work.count(); item = mine_after(item), count += kVectorGroups) {
    const bool more = prepared < work.count();
    RawHead raw;
    if (more) raw = load();  // under way while the states of this item are
    wait(&shared.done[count % kBuffers], count / kBuffers % 2);
    const HeadVectors& head = shared.head[count % kBuffers];
    store_normed(call, head.o[t], head.gate[t], work.row(item), work.head(item), thread,
                 shared.head[count % kBuffers].partial);
    if (more) prepare(raw);
  }
}

template <class State>
__global__ void __launch_bounds__(kThreads, 1) decode_kernel(KdaCall call, Work work) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared<State>& shared = *reinterpret_cast<Shared<State>*>(memory);
  if (threadIdx.x == 0) {
    for (int w = 0; w < kStateWarps; ++w)
      for (int s = 0; s < kSlots<State>; ++s) init_barrier(&shared.pieces.full[w][s], 1);
    for (int b = 0; b < kBuffers; ++b)
      init_barrier(&shared.ready[b], kKdaSize), init_barrier(&shared.done[b], kStateWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32 * kStateWarps) {
    stream_states(call, work, shared);
    return;
  }
  for (int item = blockIdx.x; item < work.count(); item += gridDim.x)  // padding
    if (threadIdx.x < 32 * kStateWarps + kKdaSize && work.slot[work.row(item)] < 0)
      fill_output(call, work.row(item), work.head(item), 0);
  prepare_and_finish(call, work, shared);
}

template <class State>
cudaError_t launch(const KdaCall& call, const Work& work, cudaStream_t stream) {
  constexpr int bytes = sizeof(Shared<State>);
  int blocks = 0;
  if (cudaError_t e = prepare_resident(decode_kernel<State>, bytes, work.rows * work.heads, blocks)) return e;
  decode_kernel<State><<<blocks, kThreads, bytes, stream>>>(call, work);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_kda_decode(const KdaCall& call, const int32_t* past, const int32_t* slot, int rows, KdaState state,
                              cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const Work work{past, slot, rows, call.heads};
  return state == KdaState::kF32 ? launch<float>(call, work, stream) : launch<__nv_bfloat16>(call, work, stream);
}

}  // namespace lathe::sm90
