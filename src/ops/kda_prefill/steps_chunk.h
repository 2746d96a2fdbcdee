#pragma once

// Part of steps_body.h: needs the lanes of an instruction set, and is local to the file that includes it.

#include "ops/kda_prefill/steps_numbers.h"

namespace lathe {
namespace {

// The recurrence a chunk at a time, as small matrices (model.md 5.4).

// Products of small matrices. Each sum runs over the inner index in ascending order, so no tiling changes a bit.

template <bool kTf32>
inline Lanes operand(Lanes x) {
  return kTf32 ? shortened<13>(x) : x;
}

// c [kRows, kVectors·kLanes] = a [kRows, inner] · b [inner, ..]
template <int kRows, int kVectors, bool kTf32>
inline void product_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int inner, float* c,
                         int64_t c_stride) {
  Lanes sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kVectors; ++n) sum[r][n] = zero();
  for (int i = 0; i < inner; ++i) {
    Lanes bi[kVectors];
    for (int n = 0; n < kVectors; ++n) bi[n] = operand<kTf32>(load(b + i * b_stride + n * kLanes));
    for (int r = 0; r < kRows; ++r) {
      const Lanes ar = all(a[r * a_stride + i]);
      for (int n = 0; n < kVectors; ++n) sum[r][n] = fma(ar, bi[n], sum[r][n]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kVectors; ++n) store(c + r * c_stride + n * kLanes, sum[r][n]);
}

// c [kRows, 2·kLanes] = Diag(decay)·c + aᵀ·b, a [inner, kRows], b [inner, 2·kLanes]; decay nullptr: 1. The product is
// summed apart and meets c once: added one by one, increments far smaller than c would each lose what lies below c's
// last place, and over a million tokens that shows.
template <int kRows, bool kTf32A, bool kTf32B>
inline void update_tile(const float* decay, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                        int inner, float* c, int64_t c_stride) {
  Lanes sum[kRows][2];
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = zero();
  for (int i = 0; i < inner; ++i) {
    const Lanes b0 = operand<kTf32B>(load(b + i * b_stride)), b1 = operand<kTf32B>(load(b + i * b_stride + kLanes));
    for (int r = 0; r < kRows; ++r) {
      const Lanes ar = operand<kTf32A>(all(a[i * a_stride + r]));
      sum[r][0] = fma(ar, b0, sum[r][0]), sum[r][1] = fma(ar, b1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < 2; ++n) {
      float* cell = c + r * c_stride + n * kLanes;
      store(cell, decay ? fma(all(decay[r]), load(cell), sum[r][n]) : add(load(cell), sum[r][n]));
    }
}

// Lowest sum of a chunk's log gates that the factored form may meet. Factors are taken from the middle of the chunk, so
// they stay within exp(±80) wherever they count.
constexpr float kLowestSum = -160;

// One vector of channels of all tokens: k, q and k again, scaled from the middle (left, left, right), then from the
// ends.
template <bool kTf32>
inline bool chunk_channels(const KdaSizes& s, const KdaBlock& block, int n, int at, const KdaChunk& out) {
  const int64_t kp = s.kp;
  float *left = out.work, *right = out.work + 2 * kChunk * kp;
  Lanes G[kChunk];
  Lanes sum = zero();
  for (int t = 0; t < n; ++t) G[t] = sum = add(sum, load(block.g + t * kp + at));
  if (!all_above(sum, all(kLowestSum))) return false;
  const Lanes middle = G[(n - 1) / 2];
  Abreast ends;
  LATHE_ABREAST ends.x[i] = i == 0 ? middle : i == 1 ? sub(sum, middle) : sum;
  ends = exponential(ends);
  const Lanes head = ends.x[0], tail = ends.x[1];
  store(out.decay + at, ends.x[2]);
  for (int first = 0; first < n; first += kAbreast) {
    Abreast up;
    LATHE_ABREAST up.x[i] = first + i < n ? sub(G[first + i], middle) : zero();
    up = exponential(up);
    LATHE_ABREAST if (first + i < n) {
      const int64_t row = (first + i) * kp + at;
      const Lanes key = load(block.k + row), lk = mul(key, up.x[i]), lq = mul(load(block.q + row), up.x[i]),
                  r = mul(key, reciprocal(up.x[i]));
      store(left + row, operand<kTf32>(lk)), store(left + kChunk * kp + row, operand<kTf32>(lq)), store(right + row, r);
      store(out.x + row, operand<kTf32>(mul(lk, head))),
          store(out.x + kChunk * kp + row, operand<kTf32>(mul(lq, head)));
      store(out.keys + row, mul(r, tail));
    }
  }
  float* const padded[6] = {left, left + kChunk * kp, right, out.x, out.x + kChunk * kp, out.keys};
  for (int t = n; t < kChunk; ++t)
    for (float* rows : padded) store(rows + t * kp + at, zero());
  return true;
}

template <bool kTf32>
bool make_chunk(const KdaSizes& s, const KdaBlock& block, int n, KdaChunk& out) {
  const int64_t kp = s.kp;
  for (int i = 0; i < kp; i += kLanes)
    if (!chunk_channels<kTf32>(s, block, n, i, out)) return false;
  float *left = out.work, *right = left + 2 * kChunk * kp, *right_t = right + kChunk * kp;  // right_t [kp, kChunk]
  for (int i = 0; i < kp; i += kLanes)
    for (int t = 0; t < kChunk; t += kLanes)
      transpose(right + t * kp + i, kp, right_t + int64_t{i} * kChunk + t, kChunk);
  constexpr int kVectors = kChunk / kLanes >= 2 ? 2 : 1, kRows = 2 * kTileRows / kVectors;
  for (int r = 0; r < 2 * kChunk; r += kRows)
    for (int j = 0; j < kChunk; j += kVectors * kLanes)
      product_tile<kRows, kVectors, kTf32>(left + r * kp, kp, right_t + j, kChunk, s.k, out.ep + r * kChunk + j,
                                           kChunk);
  for (int t = 0; t < n; ++t)
    for (int j = 0; j < kChunk; ++j) out.ep[t * kChunk + j] *= block.b[t];
  out.tokens = n;
  return true;
}

// d [kChunk] of one vector of columns: (I + E)·d = b·(v - x·S), by substitution; y: x·S, then o. Unrolled, so that d
// stays in registers; the 16 steps are too short for a tensor product, so they are fp32 in every form. Rows of v and y
// behind the chunk's tokens hold anything; their b is 0, and their d must be, too.
inline void solve_columns(const KdaSizes& s, const KdaBlock& block, const KdaChunk& chunk, int column, float* y,
                          float* d, bool outputs) {
  const float *E = chunk.ep, *P = chunk.ep + kChunk * kChunk;
  Lanes x[kChunk];
#pragma GCC unroll 16
  for (int t = 0; t < kChunk; ++t)
    x[t] = t < chunk.tokens
               ? mul(all(block.b[t]), sub(load(block.v + int64_t{t} * s.vp + column), load(y + t * kColumns)))
               : zero();
#pragma GCC unroll 16
  for (int j = 0; j < kChunk; ++j) {
#pragma GCC unroll 16
    for (int t = j + 1; t < kChunk; ++t) x[t] = fnma(all(E[t * kChunk + j]), x[j], x[t]);
    store(d + j * kColumns, x[j]);
  }
  if (!outputs) return;
#pragma GCC unroll 16
  for (int t = 0; t < kChunk; ++t) {
    Lanes o = load(y + (kChunk + t) * kColumns);
#pragma GCC unroll 16
    for (int j = 0; j <= t; ++j) o = fma(all(P[t * kChunk + j]), x[j], o);
    store(y + (kChunk + t) * kColumns, o);
  }
}

template <bool kTf32>
void advance_block(const KdaSizes& s, const KdaBlock& block, const KdaChunk& chunk, int column, float* S, float* o) {
  const int64_t kp = s.kp;
  alignas(64) float y[2 * kChunk * kColumns], d[kChunk * kColumns];
  for (int r = 0; r < (o ? 2 : 1) * kChunk; r += kTileRows)
    product_tile<kTileRows, 2, kTf32>(chunk.x + r * kp, kp, S, kColumns, s.k, y + r * kColumns, kColumns);
  for (int n = 0; n < 2; ++n)
    solve_columns(s, block, chunk, column + n * kLanes, y + n * kLanes, d + n * kLanes, o != nullptr);
  if (o)
    for (int t = 0; t < chunk.tokens; ++t)
      for (int n = 0; n < 2; ++n)
        store(o + int64_t{t} * s.vp + column + n * kLanes, load(y + (kChunk + t) * kColumns + n * kLanes));
  for (int i = 0; i < kp; i += kTileRows)
    // In TF32, d comes in two parts, high and low: rounding both operands of what a token adds would alone cost 2.9e-4.
    update_tile<kTileRows, kTf32, false>(chunk.decay + i, chunk.keys + i, kp, d, kColumns, kChunk,
                                         S + int64_t{i} * kColumns, kColumns);
}

void join(const KdaSizes& s, const float* a, const float* from, float* to, bool tf32) {
  for (int i = 0; i < s.kp; i += kTileRows) {
    float* rows = to + int64_t{i} * kColumns;
    if (tf32)
      update_tile<kTileRows, true, true>(nullptr, a + i, s.kp, from, kColumns, s.k, rows, kColumns);
    else
      update_tile<kTileRows, false, false>(nullptr, a + i, s.kp, from, kColumns, s.k, rows, kColumns);
  }
}

}  // namespace
}  // namespace lathe
