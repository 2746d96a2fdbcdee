#include "ops/kda_prefill/sequential.cuh"
#include "ops/kda_replay/variants.h"

// A block a head of a sequence, in fp32, for any sizes. The checkpoint stays in shared memory; records are read from the
// ring, as the contract's formulas have them.
namespace lathe::cuda {

namespace {

constexpr float kFloor = -80;  // below this running log gate a pre-decayed key could leave fp32
constexpr int kMostRecords = 64;

struct Head {
  const KdaReplayArgs& a;
  int64_t slot;
  int head;
  float* S;  // the checkpoint, [V, K]

  __device__ int64_t at(int j) const { return int64_t{head} * a.length + j; }
  __device__ float key(int j, int i) const { return load(a.ring_key, slot, at(j) * a.layer.k + i); }
  __device__ float d(int j, int n) const { return load(a.ring_d, slot, at(j) * a.layer.v + n); }
  __device__ float gate(int j, int i) const { return load(a.ring_gate, slot, at(j) * a.layer.k + i); }
  // What is missing in a stored key's decay.
  __device__ float excess(int j, int i) const { return fminf(gate(j, i) - kFloor, 0); }

  // S0 <- (S0 + sum_j d_j·key_jᵀ)·Diag(exp(G)), G after `count` records; also into the slot.
  __device__ void fold(int count) const {
    const int k = a.layer.k, cells = a.layer.v * k;
    for (int at = threadIdx.x; at < cells; at += blockDim.x) {
      const int n = at / k, i = at % k;
      const float G = gate(count - 1, i);
      float x = S[at] * expf(G);
      for (int j = 0; j < count; ++j) x += d(j, n) * (key(j, i) * expf(G - excess(j, i)));
      S[at] = x;
      store(a.memory.state, slot, int64_t{head} * cells + at, x);
    }
    __syncthreads();
  }

  __device__ void neutralise(int count) const {
    for (int64_t i = threadIdx.x; i < int64_t{count} * a.layer.k; i += blockDim.x) {
      store(a.ring_key, slot, at(0) * a.layer.k + i, 0);
      store(a.ring_gate, slot, at(0) * a.layer.k + i, 0);
    }
    for (int64_t i = threadIdx.x; i < int64_t{count} * a.layer.v; i += blockDim.x)
      store(a.ring_d, slot, at(0) * a.layer.v + i, 0);
    __syncthreads();
  }

  // Output of the token that becomes record j. G: its running log gate. on_k, on_q: [kMostRecords], what each record gives
  // to S~·k and S~·q.
  __device__ void step(int j, const KdaToken& t, const float* G, float* on_k, float* on_q, float* space) const {
    const int k = a.layer.k, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int r = warp; r < j; r += kKdaWarps) {
      float with_k = 0, with_q = 0;
      for (int i = lane; i < k; i += 32) {
        const float decayed = key(r, i) * expf(G[i] - excess(r, i));
        with_k += decayed * t.k[i], with_q += decayed * t.q[i];
      }
      with_k = warp_sum(with_k), with_q = warp_sum(with_q);
      if (lane == 0) on_k[r] = with_k, on_q[r] = with_q;
    }
    float kq = 0;
    for (int i = threadIdx.x; i < k; i += blockDim.x) kq += t.k[i] * t.q[i];
    kq = block_sum(kq, space);  // its barriers also publish on_k and on_q
    for (int n = warp; n < a.layer.v; n += kKdaWarps) {
      float seen = 0, o = 0;
      for (int i = lane; i < k; i += 32) {
        const float s = S[n * k + i] * expf(G[i]);
        seen += s * t.k[i], o += s * t.q[i];
      }
      seen = warp_sum(seen), o = warp_sum(o);
      for (int r = 0; r < j; ++r) seen += d(r, n) * on_k[r], o += d(r, n) * on_q[r];
      const float mine = t.beta * (t.v[n] - seen);
      __syncwarp();
      if (lane == 0) {
        t.o[n] = o + mine * kq;
        store(a.ring_d, slot, at(j) * a.layer.v + n, mine);
      }
    }
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
      store(a.ring_key, slot, at(j) * k + i, t.k[i] * expf(-fmaxf(G[i], kFloor)));
      store(a.ring_gate, slot, at(j) * k + i, G[i]);
    }
    __syncthreads();
  }
};

// True for the whole block if, without a gate bound, some channel's running log gate passes the floor within the step.
__device__ bool passes_floor(const KdaReplayArgs& a, const Head& head, int base, int64_t begin, int64_t end) {
  bool passes = false;
  for (int i = threadIdx.x; i < a.layer.k; i += blockDim.x) {
    const int64_t c = int64_t{head.head} * a.layer.k + i;
    float G = head.gate(base - 1, i);
    for (int64_t row = begin; row < end; ++row)
      G += kda_log_gate(load(a.in.forget, row, c), a.layer.dt_bias[c], a.layer.a_log[head.head], a.layer.bound);
    passes |= G < kFloor;
  }
  return __syncthreads_or(passes);
}

__device__ void load_checkpoint(const KdaReplayArgs& a, const Head& head, bool empty) {
  const int cells = a.layer.v * a.layer.k;
  for (int at = threadIdx.x; at < cells; at += blockDim.x) {
    const int64_t place = int64_t{head.head} * cells + at;
    head.S[at] = empty ? 0 : load(a.memory.state, head.slot, place);
    if (empty) store(a.memory.state, head.slot, place, 0);
  }
  __syncthreads();
}

// Grid: (heads, sequences).
__global__ void __launch_bounds__(kKdaThreads) replay_kernel(const __grid_constant__ KdaReplayArgs a) {
  extern __shared__ float shared[];
  __shared__ float space[32], on_k[kMostRecords], on_q[kMostRecords];
  const int64_t sequence = blockIdx.y;
  const Head head{a, a.slot[sequence], static_cast<int>(blockIdx.x), shared};
  if (a.flush) {
    const int committed = head.slot < 0 ? 0 : a.cursor[head.slot];
    if (committed == 0) return;
    load_checkpoint(a, head, false);
    return head.fold(committed);
  }
  const int64_t begin = a.runs.start[sequence], end = a.runs.start[sequence + 1], past = a.runs.past[sequence];
  if (head.slot < 0) return kda_zero_rows(a.layer, a.y, begin, end, head.head);
  if (begin == end) return;
  const int rows = static_cast<int>(end - begin), committed = past == 0 ? 0 : a.cursor[head.slot];
  const int base = replay_base(committed, rows, a.length);
  load_checkpoint(a, head, past == 0);
  if (base < committed) head.fold(committed);
  if (a.layer.bound == 0 && base > 0 && passes_floor(a, head, base, begin, end)) {
    head.fold(base);
    head.neutralise(base);
  }
  float* G = shared + a.layer.v * a.layer.k;
  KdaToken t = KdaToken::at(G + a.layer.k, a.layer);
  for (int i = threadIdx.x; i < a.layer.k; i += blockDim.x) G[i] = base > 0 ? head.gate(base - 1, i) : 0;
  for (int r = 0; r < rows; ++r) {
    kda_take_token(a.in, a.layer, a.memory, begin + r, head.head, head.slot, past + r, t, space);
    for (int i = threadIdx.x; i < a.layer.k; i += blockDim.x) G[i] += t.g[i];
    __syncthreads();
    head.step(base + r, t, G, on_k, on_q, space);
    kda_put_output(a.in, a.layer, a.y, begin + r, head.head, t, space);
  }
}

int64_t replay_shared(const KdaLayer& layer) {
  return 4 * (int64_t{layer.v} * layer.k + layer.k + KdaToken::floats(layer));
}

}  // namespace

bool kda_replay_applies(const KdaReplayArgs& a) {
  return a.length <= kMostRecords && replay_shared(a.layer) <= kMostShared - 1024;
}

Status kda_replay(OpContext& ctx, const KdaReplayArgs& a) {
  if (a.slot.count == 0) return Status::ok();
  LATHE_RETURN_IF_ERROR(allow_shared(replay_kernel, replay_shared(a.layer)));
  replay_kernel<<<dim3(a.layer.heads, static_cast<unsigned>(a.slot.count)), kKdaThreads, replay_shared(a.layer),
                  stream_of(ctx)>>>(a);
  return launched("kda_replay");
}

}  // namespace lathe::cuda
