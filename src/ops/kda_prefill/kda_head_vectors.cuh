#pragma once

#include "ops/kda_prefill/kda_sm90.cuh"

// A head's vectors in a decode step, made by a group of 128 threads: thread t has channel t of q, k and v. A block has
// two such groups, for every other head; a group synchronises by the barrier of its number.
namespace lathe::sm90 {

constexpr int kVectorGroups = 2;

struct VectorThread {
  int group, t;
  __device__ explicit VectorThread(int thread) : group(thread / kKdaSize), t(thread % kKdaSize) {}
  __device__ void sync() const { sync_group(1 + group, kKdaSize); }
};

// In shared memory.
struct alignas(16) HeadVectors {
  float k[kKdaSize], q[kKdaSize], a[kKdaSize], v[kKdaSize], gate[kKdaSize], o[kKdaSize];
  float partial[4][4];  // of each warp
  float beta, kq;
};

// What a thread reads of a head of a row. x[i]: inputs of the convolution, the oldest first.
struct RawHead {
  __nv_bfloat16 x[3][kKdaWidth] = {};
  __nv_bfloat16 forget = {}, gate = {}, beta = {};
  float4 weight[3];
  float a_log, dt_bias, norm_weight;
};

__device__ inline int64_t channel_of(const KdaCall& call, int part, int head, int t) {
  return (int64_t{part} * call.heads + head) * kKdaSize + t;
}

__device__ inline RawHead load_raw(const KdaCall& call, int row, int head, int64_t slot, int position, int t) {
  RawHead raw;
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    const int64_t channel = channel_of(call, part, head, t);
#pragma unroll
    for (int back = 1; back < kKdaWidth; ++back) {
      const int64_t at = slot * call.ring + (position + call.ring - back) % call.ring;
      raw.x[part][kKdaWidth - 1 - back] =
          back <= position ? call.conv[at * channels_of(call) + channel] : __nv_bfloat16{};
    }
    raw.x[part][kKdaWidth - 1] = call.qkv[row * call.qkv_stride + channel];
    raw.weight[part] = conv_weights(call, channel);
  }
  raw.a_log = call.a_log[head], raw.dt_bias = call.dt_bias[head * kKdaSize + t], raw.norm_weight = call.norm_weight[t];
  raw.forget = call.forget[row * call.forget_stride + head * kKdaSize + t];
  raw.gate = call.gate[row * call.gate_stride + head * kKdaSize + t];
  raw.beta = call.beta[row * call.beta_stride + head];
  return raw;
}

// Puts the row's inputs into the convolution's ring, in the place of some that this thread has read.
__device__ inline void push_raw(const KdaCall& call, const RawHead& raw, int head, int64_t slot, int position, int t) {
  const int64_t at = slot * call.ring + position % call.ring;
#pragma unroll
  for (int part = 0; part < 3; ++part)
    call.conv[at * channels_of(call) + channel_of(call, part, head, t)] = raw.x[part][kKdaWidth - 1];
}

__device__ inline float convolve(const RawHead& raw, int part) {
  const __nv_bfloat16* x = raw.x[part];
  return convolve(raw.weight[part], __bfloat162float(x[0]), __bfloat162float(x[1]), __bfloat162float(x[2]),
                  __bfloat162float(x[3]));
}

// Sums of three values over all threads of the group, in every thread.
__device__ inline float3 sum_threads(float3 x, VectorThread thread, float (*partial)[4]) {
  const int t = thread.t;
  x = {warp_sum(x.x), warp_sum(x.y), warp_sum(x.z)};
  if (t % 32 == 0) partial[t / 32][0] = x.x, partial[t / 32][1] = x.y, partial[t / 32][2] = x.z;
  thread.sync();
  return {partial[0][0] + partial[1][0] + partial[2][0] + partial[3][0],
          partial[0][1] + partial[1][1] + partial[2][1] + partial[3][1],
          partial[0][2] + partial[1][2] + partial[2][2] + partial[3][2]};
}

struct Activated {
  float q, k, v, log2_decay, kq;  // q and k normalised, kq their product
};

__device__ inline Activated activate_thread(const KdaCall& call, const RawHead& raw, VectorThread thread,
                                            float (*partial)[4]) {
  const float q = convolve(raw, 0), k = convolve(raw, 1), v = convolve(raw, 2);
  const float g = log2_gate(__bfloat162float(raw.forget), raw.dt_bias, __expf(raw.a_log), call.bound);
  const float3 sums = sum_threads({q * q, k * k, k * q}, thread, partial);
  const float q_scale = rsqrtf(sums.x + 1e-6f) * rsqrtf(float{kKdaSize}), k_scale = rsqrtf(sums.y + 1e-6f);
  return {q * q_scale, k * k_scale, v, g, sums.z * q_scale * k_scale};
}

__device__ inline float output_gate(const RawHead& raw) {
  return raw.norm_weight * sigmoid(__bfloat162float(raw.gate));
}
__device__ inline float beta_of(const RawHead& raw) { return round_bf16(sigmoid(__bfloat162float(raw.beta))); }

__device__ inline void activate(const KdaCall& call, const RawHead& raw, VectorThread thread, HeadVectors& to) {
  const Activated x = activate_thread(call, raw, thread, to.partial);
  const int t = thread.t;
  to.q[t] = x.q, to.k[t] = x.k, to.v[t] = x.v, to.a[t] = exp2_fast(x.log2_decay);
  to.gate[t] = output_gate(raw);
  if (t == 0) to.beta = beta_of(raw), to.kq = x.kq;
}

// Norms and gates o into y.
__device__ inline void store_normed(const KdaCall& call, float o, float gate, int row, int head, VectorThread thread,
                                    float (*partial)[4]) {
  o = round_bf16(o);
  const float squares = sum_threads({o * o, 0, 0}, thread, partial).x;
  const float y = o * rsqrtf(squares * (1.0f / kKdaSize) + call.norm_eps) * gate;
  call.y[row * call.y_stride + head * kKdaSize + thread.t] = __float2bfloat16_rn(y);
  thread.sync();  // before `partial` is used again
}

__device__ inline void fill_output(const KdaCall& call, int row, int head, float value) {
  const int t = threadIdx.x % kKdaSize;
  call.y[row * call.y_stride + head * kKdaSize + t] = __float2bfloat16_rn(value);
}

}  // namespace lathe::sm90
