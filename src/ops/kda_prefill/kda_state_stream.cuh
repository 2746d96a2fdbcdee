#pragma once

#include "ops/kda_prefill/kda_sm90.cuh"

// States flow through shared memory in pieces of 8 rows of V. Each warp has its own pieces and its own slots for them:
// bulk copies bring a piece, the warp works on it in place, a bulk copy takes it back. Warps never wait for each other.
namespace lathe::sm90 {

constexpr int kStateWarps = 8;
constexpr int kPieceRows = 8;
constexpr int kPieces = kKdaSize / kPieceRows / kStateWarps;  // of a head, for each warp

// Elements 4·lane .. 4·lane + 3 of a row of the state.
__device__ inline float4 load_four(const float* row, int lane) { return reinterpret_cast<const float4*>(row)[lane]; }
__device__ inline void store_four(float* row, int lane, float4 s) { reinterpret_cast<float4*>(row)[lane] = s; }
__device__ inline float4 load_four(const __nv_bfloat16* row, int lane) {
  const uint2 p = reinterpret_cast<const uint2*>(row)[lane];
  return {low(p.x), high(p.x), low(p.y), high(p.y)};
}
__device__ inline void store_four(__nv_bfloat16* row, int lane, float4 s) {
  reinterpret_cast<uint2*>(row)[lane] = {pack(s.x, s.y), pack(s.z, s.w)};
}

__device__ inline float dot(float4 a, float4 b) { return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w))); }
__device__ inline float4 scaled(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ inline void add_scaled(float4& s, float d, float4 k) {
  s = {fmaf(d, k.x, s.x), fmaf(d, k.y, s.y), fmaf(d, k.z, s.z), fmaf(d, k.w, s.w)};
}

template <class State, int kSlots>
struct PieceSlots {
  alignas(128) State data[kStateWarps][kSlots][kPieceRows * kKdaSize];
  Barrier full[kStateWarps][kSlots];
};

// One warp's way through its pieces of a list of heads. kAhead pieces are under way; a slot is refilled once the piece
// that was kSlots - kAhead before is on its way back.
template <class State, int kSlots, int kAhead>
class PieceStream {
 public:
  static constexpr uint32_t kBytes = kPieceRows * kKdaSize * sizeof(State);

  __device__ PieceStream(PieceSlots<State, kSlots>& slots, int warp)
      : data_(slots.data[warp]), full_(slots.full[warp]), policy_(evict_first()) {}

  // One thread; `next()` gives the global address of the piece after the last one asked for, or nullptr at the end.
  template <class Next>
  __device__ void start(Next&& next) {
    for (int i = 0; i < kAhead; ++i) request(next());
  }
  __device__ State* wait_piece() {
    wait(&full_[at_], parity_);
    return data_[at_];
  }
  // One thread, after the warp is done with the piece: sends it to `to` if it changed, and asks for a later piece.
  template <class Next>
  __device__ void finish(State* to, Next&& next) {
    if (to) bulk_store(to, data_[at_], kBytes, policy_);
    commit_stores();
    wait_stores_read<kSlots - kAhead>();
    request(next());
  }
  __device__ void advance() {
    if (++at_ == kSlots) at_ = 0, parity_ ^= 1;
  }

 private:
  __device__ void request(const State* from) {
    if (!from) return;
    arrive_expecting(&full_[ask_], kBytes);
    bulk_load(data_[ask_], from, kBytes, &full_[ask_], policy_);
    if (++ask_ == kSlots) ask_ = 0;
  }

  State (*data_)[kPieceRows * kKdaSize];
  Barrier* full_;
  uint64_t policy_;
  int at_ = 0, ask_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace lathe::sm90
