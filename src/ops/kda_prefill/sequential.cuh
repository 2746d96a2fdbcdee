#pragma once

#include "ops/cuda_kernel.cuh"
#include "ops/kda_prefill/kda_layer.h"

// A head of Kimi delta attention token by token, in fp32, for any sizes: what kda_decode, kda_prefill and kda_scan do, and
// how kda_replay prepares its tokens. A block a head of a sequence.
namespace lathe::cuda {

constexpr int kKdaThreads = 256, kKdaWarps = kKdaThreads / 32;

// One token of one head in shared memory: q, k, log decay [K], v [V], o [V].
struct KdaToken {
  float *q, *k, *g, *v, *o;
  float beta;

  __device__ static KdaToken at(float* shared, const KdaLayer& layer) {
    return {shared, shared + layer.k, shared + 2 * layer.k, shared + 3 * layer.k, shared + 3 * layer.k + layer.v, 0};
  }
  __host__ __device__ static int64_t floats(const KdaLayer& layer) { return 3 * layer.k + 2 * layer.v; }
};

__device__ inline float kda_sigmoid(float x) { return 1 / (1 + expf(-x)); }

// The one gate function of these kernels.
__device__ inline float kda_log_gate(float f, float dt_bias, float a_log, float bound) {
  const float rate = expf(a_log), x = f + dt_bias;
  if (bound < 0) return bound * kda_sigmoid(rate * x);
  return -rate * (x > 20 ? x : log1pf(expf(x)));
}

// Channel c of the convolution after SiLU: the row itself, and what the ring kept of the positions before it.
__device__ inline float kda_convolved(const KdaRows& in, const KdaLayer& layer, int64_t row, int64_t c,
                                      const KdaMemory& memory, int64_t slot, int64_t position) {
  const int64_t channels = int64_t{layer.heads} * (2 * layer.k + layer.v);
  const float* w = layer.conv_weight.data + c * layer.width;
  float sum = w[layer.width - 1] * load(in.qkv, row, c);
  for (int back = 1; back < layer.width && back <= position; ++back)
    sum += w[layer.width - 1 - back] * load(memory.conv, slot, (position - back) % memory.ring * channels + c);
  return rounded(sum * kda_sigmoid(sum), in.qkv.dtype);
}

// Calls body(c) for this head's channels of q, k and v.
template <class Body>
__device__ void for_kda_channels(const KdaLayer& layer, int head, Body body) {
  const int all = 2 * layer.k + layer.v;
  for (int i = threadIdx.x; i < all; i += blockDim.x) {
    const int64_t keys = int64_t{layer.heads} * layer.k;
    body(i, i < layer.k       ? head * layer.k + i
            : i < 2 * layer.k ? keys + head * layer.k + i - layer.k
                              : 2 * keys + head * layer.v + i - 2 * layer.k);
  }
}

// Fills `t` from the raw row, and puts the row's channels of this head into the ring. Ends with a barrier.
__device__ inline void kda_take_token(const KdaRows& in, const KdaLayer& layer, const KdaMemory& memory, int64_t row,
                                      int head, int64_t slot, int64_t position, KdaToken& t, float* space) {
  const int64_t channels = int64_t{layer.heads} * (2 * layer.k + layer.v);
  for_kda_channels(layer, head, [&](int i, int64_t c) {
    const float x = kda_convolved(in, layer, row, c, memory, slot, position);
    (i < layer.k ? t.q[i] : i < 2 * layer.k ? t.k[i - layer.k] : t.v[i - 2 * layer.k]) = x;
    // The same thread read what this displaces.
    if (memory.ring > 0) store(memory.conv, slot, position % memory.ring * channels + c, load(in.qkv, row, c));
  });
  for (int i = threadIdx.x; i < layer.k; i += blockDim.x)
    t.g[i] = kda_log_gate(load(in.forget, row, int64_t{head} * layer.k + i), layer.dt_bias[int64_t{head} * layer.k + i],
                          layer.a_log[head], layer.bound);
  t.beta = rounded(kda_sigmoid(load(in.beta, row, head)), in.beta.dtype);
  __syncthreads();
  float qq = 0, kk = 0;
  for (int i = threadIdx.x; i < layer.k; i += blockDim.x) qq += t.q[i] * t.q[i], kk += t.k[i] * t.k[i];
  qq = block_sum(qq, space), kk = block_sum(kk, space);
  const float q_scale = 1 / (sqrtf(qq + 1e-6f) * sqrtf(static_cast<float>(layer.k))), k_scale = 1 / sqrtf(kk + 1e-6f);
  for (int i = threadIdx.x; i < layer.k; i += blockDim.x) t.q[i] *= q_scale, t.k[i] *= k_scale;
  __syncthreads();
}

// Rounds o, norms and gates it into y. Begins and ends with a barrier.
__device__ inline void kda_put_output(const KdaRows& in, const KdaLayer& layer, const Rows& y, int64_t row, int head,
                                      const KdaToken& t, float* space) {
  __syncthreads();
  float square = 0;
  for (int j = threadIdx.x; j < layer.v; j += blockDim.x) {
    const float o = rounded(t.o[j], y.dtype);
    square += o * o;
  }
  const float scale = 1 / sqrtf(block_sum(square, space) / static_cast<float>(layer.v) + layer.norm_eps);
  for (int j = threadIdx.x; j < layer.v; j += blockDim.x)
    store(y, row, int64_t{head} * layer.v + j,
          layer.norm_weight[j] * rounded(t.o[j], y.dtype) * scale *
              kda_sigmoid(load(in.gate, row, int64_t{head} * layer.v + j)));
  __syncthreads();
}

__device__ inline void kda_zero_rows(const KdaLayer& layer, const Rows& y, int64_t begin, int64_t end, int head) {
  for (int64_t row = begin; row < end; ++row)
    for (int j = threadIdx.x; j < layer.v; j += blockDim.x) store(y, row, int64_t{head} * layer.v + j, 0);
}

// The recurrence's step on S [V, K] in shared memory: a warp a row of S.
__device__ inline void kda_step(float* S, const KdaLayer& layer, const KdaToken& t) {
  for (int j = threadIdx.x / 32; j < layer.v; j += blockDim.x / 32) {
    float *row = S + j * layer.k, seen = 0, o = 0;
    for (int i = threadIdx.x % 32; i < layer.k; i += 32) {
      row[i] *= expf(t.g[i]);
      seen += row[i] * t.k[i];
    }
    const float d = t.beta * (t.v[j] - warp_sum(seen));
    for (int i = threadIdx.x % 32; i < layer.k; i += 32) {
      row[i] += d * t.k[i];
      o += row[i] * t.q[i];
    }
    o = warp_sum(o);
    if (threadIdx.x % 32 == 0) t.o[j] = o;
  }
}

// Runs of rows, one a sequence, whatever operator they belong to.
struct KdaRuns {
  KdaRows in;
  KdaLayer layer;
  KdaMemory memory;
  Array<const int32_t> start;  // empty: run i is row i
  Array<const int32_t> past, slot;
  Array<const int32_t> checkpoint_row, checkpoint_slot;  // ascending rows, or empty
  Rows y;
};

Status run_kda(OpContext& ctx, const KdaRuns& runs);
inline bool kda_fits(const KdaLayer& layer) {
  return (int64_t{layer.v} * layer.k + KdaToken::floats(layer)) * 4 <= kMostShared - 1024;
}

}  // namespace lathe::cuda
