#pragma once

// Part of steps_body.h: needs the lanes of an instruction set, and is local to the file that includes it.

#include "ops/kda_prefill/steps_tokens.h"

namespace lathe {
namespace {

// States to tiles and back, and what a replay does with a checkpoint and its records.

// kLanes x kLanes cells of S from row j, channel i; zero outside.
inline void load_square(const KdaSizes& s, const float* state, int j, int i, float* out, int64_t out_stride) {
  if (j + kLanes <= s.v && i + kLanes <= s.k) return transpose(state + int64_t{j} * s.k + i, s.k, out, out_stride);
  float square[kLanes * kLanes] = {};
  for (int r = 0; r < kLanes && j + r < s.v; ++r)
    for (int c = 0; c < kLanes && i + c < s.k; ++c) square[r * kLanes + c] = state[int64_t{j + r} * s.k + i + c];
  transpose(square, kLanes, out, out_stride);
}

inline void store_square(const KdaSizes& s, const float* in, int64_t in_stride, int j, int i, float* state) {
  if (j + kLanes <= s.v && i + kLanes <= s.k) return transpose(in, in_stride, state + int64_t{j} * s.k + i, s.k);
  float square[kLanes * kLanes];
  transpose(in, in_stride, square, kLanes);
  for (int r = 0; r < kLanes && j + r < s.v; ++r)
    for (int c = 0; c < kLanes && i + c < s.k; ++c) state[int64_t{j + r} * s.k + i + c] = square[r * kLanes + c];
}

void load_block(const KdaSizes& s, const float* state, int column, float* tile_block) {
  for (int c = 0; c < kColumns; c += kLanes)
    for (int i = 0; i < s.kp; i += kLanes)
      load_square(s, state, column + c, i, tile_block + int64_t{i} * kColumns + c, kColumns);
}

void store_block(const KdaSizes& s, const float* tile_block, int column, float* state) {
  for (int c = 0; c < kColumns; c += kLanes)
    for (int i = 0; i < s.kp; i += kLanes)
      store_square(s, tile_block + int64_t{i} * kColumns + c, kColumns, column + c, i, state);
}

template <int kFixed>
void products_of_rows(const KdaSizes& s, const float* state, const float* const* x, int n, float* const* out) {
  const int K = kFixed ? kFixed : s.k;
  for (int j = 0; j < s.v; j += 4) {
    const float* rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = state + int64_t{at_most(j + r, s.v - 1)} * K;
    for (int m = 0; m < n; m += 2) {
      const int other = at_most(m + 1, n - 1);
      float first[4], second[4];
      const float* ahead = m == 0 && j + kAhead < s.v ? rows[0] + kAhead * K : nullptr;
      four_rows<kFixed>(rows, K, ahead, x[m], x[other], first, second);
      for (int r = 0; r < 4 && j + r < s.v; ++r) out[m][j + r] = first[r], out[other][j + r] = second[r];
    }
  }
}

void products(const KdaSizes& s, const float* state, const float* const* x, int n, float* const* out) {
  if (s.k == 128)
    products_of_rows<128>(s, state, x, n, out);
  else
    products_of_rows<0>(s, state, x, n, out);
}

// Four rows of S and two vectors of each; n0 and n1 of them count.
template <bool kWhole>
inline void fold_tile(const KdaSizes& s, float* cell, int rows, int n0, int n1, const float* decay, const float* d,
                      const float* keys, int records) {
  Lanes sum[4][2];
  for (int r = 0; r < 4; ++r) sum[r][0] = sum[r][1] = zero();
  for (int m = 0; m < records; ++m) {
    const float* key = keys + int64_t{m} * s.kp;
    const Lanes key0 = load(key), key1 = kWhole || n1 > 0 ? load(key + kLanes) : zero();
    for (int r = 0; r < 4; ++r) {
      const Lanes dr = all(d[int64_t{m} * s.vp + r]);
      sum[r][0] = fma(dr, key0, sum[r][0]), sum[r][1] = fma(dr, key1, sum[r][1]);
    }
  }
  for (int r = 0; r < (kWhole ? 4 : rows); ++r) {
    float* row = cell + int64_t{r} * s.k;
    if (kWhole) {
      store(row, fma(load(decay), load(row), sum[r][0]));
      store(row + kLanes, fma(load(decay + kLanes), load(row + kLanes), sum[r][1]));
    } else {
      store_up_to(row, fma(load(decay), load_up_to(row, n0), sum[r][0]), n0);
      if (n1 > 0) store_up_to(row + kLanes, fma(load(decay + kLanes), load_up_to(row + kLanes, n1), sum[r][1]), n1);
    }
  }
}

void fold(const KdaSizes& s, float* state, const float* decay, const float* d, const float* keys, int records) {
  for (int j = 0; j < s.v; j += 4)
    for (int i = 0; i < s.k; i += 2 * kLanes) {
      float* cell = state + int64_t{j} * s.k + i;
      const int rows = s.v - j, n = s.k - i;
      if (rows >= 4 && n >= 2 * kLanes)
        fold_tile<true>(s, cell, 4, kLanes, kLanes, decay + i, d + j, keys + i, records);
      else
        fold_tile<false>(s, cell, at_most(rows, 4), n, n - kLanes, decay + i, d + j, keys + i, records);
    }
}

void combine(const KdaSizes& s, const float* d, int records, const float* p, const float* q, float* a, float* b) {
  for (int j = 0; j < s.vp; j += kLanes) {
    Lanes aj = load(a + j), bj = load(b + j);
    for (int m = 0; m < records; ++m) {
      const Lanes dj = load(d + int64_t{m} * s.vp + j);
      aj = fma(all(p[m]), dj, aj), bj = fma(all(q[m]), dj, bj);
    }
    store(a + j, aj), store(b + j, bj);
  }
}

void exponentials(const float* x, float* out, int count) {
  for (int i = 0; i < count; i += kLanes) store(out + i, exponential(load(x + i)));
}

}  // namespace
}  // namespace lathe
