#pragma once

#include <cstddef>

#include "ops/kda_prefill/kda_chunk.cuh"

// The first launch of a prefill: a chunk's factors from raw rows, by two warps. Thread t of the 64 has channels 2t and
// 2t + 1 of q, k and v.
namespace lathe::sm90 {

constexpr int kFactorThreads = 64;
constexpr int kSolveStride = 20;  // floats: rows of a 16 x 16 matrix, 16-byte aligned

struct FactorScratch {
  ChunkFactors out;
  float sums[2][2 * kKdaChunk];  // of each warp: squares of q and of k, token by token
  float beta[kKdaChunk];
  float coupling[kKdaChunk * kSolveStride];  // E
};

struct Two {
  float x, y;
};

// The raw inputs of two channels: three rows before the chunk, then the chunk's; rows past its end are zero.
using RawTokens = uint32_t[kKdaWidth - 1 + kKdaChunk];

template <bool kFull>
__device__ inline void load_tokens(const __nv_bfloat16* rows, int64_t stride, int count, uint32_t* to) {
#pragma unroll
  for (int t = 0; t < kKdaChunk; ++t)
    to[t] = kFull || t < count ? *reinterpret_cast<const uint32_t*>(rows + t * stride) : 0;
}

template <bool kFull>
__device__ inline void load_inputs(const KdaCall& call, const ChunkPlace& place, int64_t slot, int32_t past,
                                   int64_t channel, RawTokens& raw) {
  const __nv_bfloat16* rows = call.qkv + place.first * call.qkv_stride + channel;
#pragma unroll
  for (int back = 1; back < kKdaWidth; ++back) {
    const int32_t position = past + place.offset - back;
    uint32_t value = 0;
    if (place.offset > 0)
      value = *reinterpret_cast<const uint32_t*>(rows - back * call.qkv_stride);
    else if (position >= 0)
      value = *reinterpret_cast<const uint32_t*>(
          call.conv + (slot * call.ring + position % call.ring) * channels_of(call) + channel);
    raw[kKdaWidth - 1 - back] = value;
  }
  load_tokens<kFull>(rows, call.qkv_stride, place.count, raw + kKdaWidth - 1);
}

// silu(x) = h + h·tanh(h), h = x / 2: one function unit's work instead of two.
__device__ inline float silu_of_half(float h) { return fmaf(h, tanh_fast(h), h); }

// Through convolution and SiLU, rounded as the rows are.
template <bool kFull>
__device__ inline void convolve_tokens(const KdaCall& call, int64_t channel, int count, const RawTokens& raw,
                                       uint32_t (&to)[kKdaChunk]) {
  float4 w = conv_weights(call, channel), u = conv_weights(call, channel + 1);
  w = {w.x / 2, w.y / 2, w.z / 2, w.w / 2}, u = {u.x / 2, u.y / 2, u.z / 2, u.w / 2};
#pragma unroll
  for (int t = 0; t < kKdaChunk; ++t) {
    const float a =
        fmaf(w.x, low(raw[t]), fmaf(w.y, low(raw[t + 1]), fmaf(w.z, low(raw[t + 2]), w.w * low(raw[t + 3]))));
    const float b =
        fmaf(u.x, high(raw[t]), fmaf(u.y, high(raw[t + 1]), fmaf(u.z, high(raw[t + 2]), u.w * high(raw[t + 3]))));
    to[t] = kFull || t < count ? pack(silu_of_half(a), silu_of_half(b)) : 0;
  }
}

// E's and P's source: rows of `left` times rows of `right`, 16 x 16, as the fragments of two tiles.
__device__ inline void multiply_rows(const __nv_bfloat16* left, const __nv_bfloat16* right, float (&c)[2][4]) {
  const int lane = threadIdx.x % 32;
  const int left_row = lane % 16, left_cell = lane / 16, right_row = lane % 8 + lane / 16 * 8,
            right_cell = lane / 8 % 2;
#pragma unroll
  for (int step = 0; step < kKdaSize / 16; ++step) {
    uint32_t a[4], b[4];
    load_tiles(a, shared_address(left + cell_offset<kKdaSize>(left_row, 2 * step + left_cell)));
    load_tiles(b, shared_address(right + cell_offset<kKdaSize>(right_row, 2 * step + right_cell)));
    multiply(c[0], a, b[0], b[1]);
    multiply(c[1], a, b[2], b[3]);
  }
}

// Column `lane` of (I + E)^-1, by substitution.
__device__ inline void solve_column(const float* coupling, int column, float (&t)[kKdaChunk]) {
#pragma unroll
  for (int i = 0; i < kKdaChunk; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int four = 0; four < i; four += 4) {
      const float4 e = *reinterpret_cast<const float4*>(coupling + i * kSolveStride + four);
      const float values[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
      for (int j = four; j < four + 4 && j < i; ++j) sum = fmaf(-values[j - four], t[j], sum);
    }
    t[i] = sum;
  }
}

// `group`: a barrier for these 64 threads. kFull: the chunk has all its tokens.
template <bool kFull>
__device__ inline void make_factors(const KdaCall& call, const ChunkPlace& place, int head, int64_t slot, int32_t past,
                                    int t, int group, FactorScratch& s) {
  const int warp = t / 32, lane = t % 32;
  const int64_t key = int64_t{head} * kKdaSize + 2 * t, keys = int64_t{call.heads} * kKdaSize;
  ChunkKeys& out = s.out.keys;
  // Where this thread's channels lie in rows 0 .. 7; rows 8 .. 15 are permuted alike.
  uint32_t* cells[8];
  uint32_t* value_cells[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    cells[i] = reinterpret_cast<uint32_t*>(&out) + cell_offset<kKdaSize>(i, t / 4) / 2 + t % 4;
    value_cells[i] =
        reinterpret_cast<uint32_t*>(s.out.value[warp]) + cell_offset<kHalfSize>(i, lane / 4) / 2 + lane % 4;
  }

  RawTokens raw_value, raw_key, raw_query;  // each is asked for a step before it is needed
  uint32_t raw_forget[kKdaChunk];
  load_inputs<kFull>(call, place, slot, past, 2 * keys + key, raw_value);
  load_tokens<kFull>(call.forget + place.first * call.forget_stride + key, call.forget_stride, place.count, raw_forget);
  __nv_bfloat16 beta{};
  if (t < kKdaChunk && (kFull || t < place.count)) beta = call.beta[(place.first + t) * call.beta_stride + head];
  {
    uint32_t value[kKdaChunk];
    convolve_tokens<kFull>(call, 2 * keys + key, place.count, raw_value, value);
#pragma unroll
    for (int i = 0; i < kKdaChunk; ++i) value_cells[i % 8][i / 8 * 8 * kHalfSize / 2] = value[i];
  }
  load_inputs<kFull>(call, place, slot, past, keys + key, raw_key);

  Two gate[kKdaChunk];  // running sums, base 2
  {
    const float rate = __expf(call.a_log[head]);
    const float2 bias = *reinterpret_cast<const float2*>(call.dt_bias + key);
    Two sum{0, 0};
#pragma unroll
    for (int i = 0; i < kKdaChunk; ++i) {
      if (kFull || i < place.count) {
        sum.x += log2_gate_bounded(low(raw_forget[i]), bias.x, rate, call.bound);
        sum.y += log2_gate_bounded(high(raw_forget[i]), bias.y, rate, call.bound);
      }
      gate[i] = sum;
    }
    *reinterpret_cast<float2*>(out.decay + 2 * t) = {exp2_fast(sum.x), exp2_fast(sum.y)};
  }
  load_inputs<kFull>(call, place, slot, past, key, raw_query);
  if (t < kKdaChunk) s.beta[t] = kFull || t < place.count ? round_bf16(sigmoid(__bfloat162float(beta))) : 0;

  uint32_t q[kKdaChunk], k[kKdaChunk];
  convolve_tokens<kFull>(call, keys + key, place.count, raw_key, k);
  convolve_tokens<kFull>(call, key, place.count, raw_query, q);
  {
    float squares[2 * kKdaChunk];
#pragma unroll
    for (int i = 0; i < kKdaChunk; ++i) {
      squares[i] = fmaf(low(q[i]), low(q[i]), high(q[i]) * high(q[i]));
      squares[kKdaChunk + i] = fmaf(low(k[i]), low(k[i]), high(k[i]) * high(k[i]));
    }
    warp_sums<2 * kKdaChunk>(squares);
    s.sums[warp][lane] = squares[0];
  }
  sync_group(group, kFactorThreads);
  if (warp == 0) {
    const float scale = rsqrtf(s.sums[0][lane] + s.sums[1][lane] + 1e-6f);
    s.sums[0][lane] = lane < kKdaChunk ? scale * rsqrtf(float{kKdaSize}) : scale;
  }
  sync_group(group, kFactorThreads);
#pragma unroll
  for (int i = 0; i < kKdaChunk; ++i) {
    const float q_scale = s.sums[0][i], k_scale = s.sums[0][kKdaChunk + i];
    const Two fall{exp2_fast(gate[i].x), exp2_fast(gate[i].y)}, rise{exp2_fast(-gate[i].x), exp2_fast(-gate[i].y)};
    const Two key_now{low(k[i]) * k_scale, high(k[i]) * k_scale};
    uint32_t* cell = cells[i % 8] + i / 8 * 8 * kKdaSize / 2;
    cell[offsetof(ChunkKeys, query) / 4] = pack(low(q[i]) * q_scale * fall.x, high(q[i]) * q_scale * fall.y);
    cell[offsetof(ChunkKeys, key_decayed) / 4] = pack(key_now.x * fall.x, key_now.y * fall.y);
    cell[offsetof(ChunkKeys, key_raised) / 4] = pack(key_now.x * rise.x, key_now.y * rise.y);
  }
  sync_group(group, kFactorThreads);

  const int row = lane / 4, column = lane % 4 * 2;  // of a fragment
  float c[2][4] = {};
  multiply_rows(warp == 0 ? out.key_decayed : out.query, out.key_raised, c);
  if (warp == 1) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half, j = 8 * n + column;
        *reinterpret_cast<uint32_t*>(out.product + i * kKdaChunk + j) =
            pack(j <= i ? c[n][2 * half] : 0, j + 1 <= i ? c[n][2 * half + 1] : 0);
      }
  } else {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half, j = 8 * n + column;
        s.coupling[i * kSolveStride + j] = j < i ? s.beta[i] * c[n][2 * half] : 0;
        s.coupling[i * kSolveStride + j + 1] = j + 1 < i ? s.beta[i] * c[n][2 * half + 1] : 0;
      }
    __syncwarp();
    float solved[kKdaChunk];
    const int j = lane % kKdaChunk;
    solve_column(s.coupling, j, solved);
    if (lane < kKdaChunk)
#pragma unroll
      for (int i = 0; i < kKdaChunk; ++i) out.solve[i * kKdaChunk + j] = __float2bfloat16_rn(solved[i] * s.beta[j]);
  }
}

}  // namespace lathe::sm90
