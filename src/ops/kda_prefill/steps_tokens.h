#pragma once

// Part of steps_body.h: needs the lanes of an instruction set, and is local to the file that includes it.

#include "ops/kda_prefill/steps_numbers.h"

namespace lathe {
namespace {

// The recurrence token by token, on a state and on a block of its tile.

void vectors(const KdaSizes& s, const KdaBlock& block, int token, KdaVectors& out) {
  const float *q = block.q + int64_t{token} * s.kp, *k = block.k + int64_t{token} * s.kp,
              *g = block.g + int64_t{token} * s.kp;
  Lanes kq = zero();
  for (int first = 0; first < s.kp; first += kAbreast * kLanes) {
    Abreast a;
    LATHE_ABREAST a.x[i] = load_part(g, first / kLanes + i, s.kp);
    a = exponential(a);
    LATHE_ABREAST if (const int at = first + i * kLanes; at < s.kp) {
      const Lanes key = load(k + at), query = load(q + at);
      store(out.a + at, a.x[i]), store(out.ak + at, mul(a.x[i], key)), store(out.aq + at, mul(a.x[i], query));
      kq = fma(key, query, kq);
    }
  }
  out.kq = sum(kq);
}

// Two sums over each of four rows. Lane l adds channels l, l + kLanes, ...; then the lanes are added as sum_each does:
// `pass` below adds in the same order.
// The state comes from memory once: rows of it are asked for `kAhead` rows early, in the order of their addresses.
constexpr int kAhead = 16, kLine = 64 / sizeof(float);

// `ahead`: four rows to fetch meanwhile, or nullptr.
template <int kFixed>
inline void four_rows(const float* const* rows, int K, const float* ahead, const float* x, const float* y,
                      float* x_sums, float* y_sums) {
  const int channels = kFixed ? kFixed : K;
  Lanes a[4] = {zero(), zero(), zero(), zero()}, b[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < channels; i += kLanes) {
    const Lanes xi = load(x + i), yi = load(y + i);
    if (kFixed && ahead)
      for (int at = 0; at < 4 * kLanes; at += kLine) __builtin_prefetch(ahead + 4 * i + at, 1);
    for (int r = 0; r < 4; ++r) {
      const Lanes cell = kFixed ? load(rows[r] + i) : load_up_to(rows[r] + i, channels - i);
      a[r] = fma(cell, xi, a[r]), b[r] = fma(cell, yi, b[r]);
    }
  }
  sum_each(a[0], a[1], a[2], a[3], x_sums);
  sum_each(b[0], b[1], b[2], b[3], y_sums);
}

template <int kFixed>
void decode_rows(const KdaSizes& s, float* state, const float* k, const KdaVectors& t, const float* v, float b,
                 float* o) {
  const int K = kFixed ? kFixed : s.k;
  for (int j = 0; j < s.v; j += 4) {
    float* rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = state + int64_t{at_most(j + r, s.v - 1)} * K;
    float seen[4], out[4];
    four_rows<kFixed>(rows, K, j + kAhead < s.v ? rows[0] + kAhead * K : nullptr, t.ak, t.aq, seen, out);
    for (int r = 0; r < 4 && j + r < s.v; ++r) {
      const float d = b * (v[j + r] - seen[r]);
      o[j + r] = fma(d, t.kq, out[r]);
      for (int i = 0; i < K; i += kLanes) {
        const int n = kFixed ? kLanes : K - i;
        store_up_to(rows[r] + i, fma(all(d), load(k + i), mul(load_up_to(rows[r] + i, n), load(t.a + i))), n);
      }
    }
  }
}

void decode(const KdaSizes& s, float* state, const float* k, const KdaVectors& t, const float* v, float b, float* o) {
  if (s.k == 128)
    decode_rows<128>(s, state, k, t, v, b, o);
  else
    decode_rows<0>(s, state, k, t, v, b, o);
}

// How many vectors of a block's columns `pass` takes at once: two where their 16 sums fit the registers.
constexpr int kPassVectors = kLanes == 16 ? 2 : 1;

struct PassSums {
  Lanes seen[kPassVectors], out[kPassVectors];
};

// One way through kPassVectors columns of a block: the last token's update, and the next one's sums over its result.
template <bool kUpdate, bool kSums>
inline PassSums pass(float* S, int kp, const float* a, const float* k, const Lanes* d, const float* ak,
                     const float* aq) {
  constexpr int kFours = kLanes / 4;
  PassSums fours[kFours];
  for (int four = 0; four < kFours; ++four) {
    Lanes seen[4][kPassVectors], out[4][kPassVectors];
    for (int l = 0; l < 4; ++l)
      for (int n = 0; n < kPassVectors; ++n) seen[l][n] = out[l][n] = zero();
    for (int first = 4 * four; first < kp; first += kLanes)
      for (int l = 0; l < 4; ++l) {
        const int i = first + l;
        Lanes cell[kPassVectors];
        for (int n = 0; n < kPassVectors; ++n) cell[n] = load(S + int64_t{i} * kColumns + n * kLanes);
        if constexpr (kUpdate) {
          const Lanes ai = all(a[i]), ki = all(k[i]);
          for (int n = 0; n < kPassVectors; ++n) {
            cell[n] = fma(d[n], ki, mul(cell[n], ai));
            store(S + int64_t{i} * kColumns + n * kLanes, cell[n]);
          }
        }
        if constexpr (kSums) {
          const Lanes aki = all(ak[i]), aqi = all(aq[i]);
          for (int n = 0; n < kPassVectors; ++n)
            seen[l][n] = fma(cell[n], aki, seen[l][n]), out[l][n] = fma(cell[n], aqi, out[l][n]);
        }
      }
    for (int n = 0; n < kPassVectors; ++n) {
      fours[four].seen[n] = add(add(seen[0][n], seen[2][n]), add(seen[1][n], seen[3][n]));
      fours[four].out[n] = add(add(out[0][n], out[2][n]), add(out[1][n], out[3][n]));
    }
  }
  for (int step = 1; step < kFours; step *= 2)
    for (int four = 0; four < kFours; four += 2 * step)
      for (int n = 0; n < kPassVectors; ++n) {
        fours[four].seen[n] = add(fours[four].seen[n], fours[four + step].seen[n]);
        fours[four].out[n] = add(fours[four].out[n], fours[four + step].out[n]);
      }
  return fours[0];
}

void tokens(const KdaSizes& s, const KdaBlock& block, const KdaVectors* t, int n, int column, float* tile_block,
            float* o) {
  for (int c = 0; c < kColumns; c += kPassVectors * kLanes) {
    float* S = tile_block + c;
    PassSums sums = pass<false, true>(S, s.kp, nullptr, nullptr, nullptr, t[0].ak, t[0].aq);
    for (int token = 0; token < n; ++token) {
      const int64_t at = int64_t{token} * s.vp + column + c;
      Lanes d[kPassVectors];
      for (int m = 0; m < kPassVectors; ++m) {
        d[m] = mul(all(block.b[token]), sub(load(block.v + at + m * kLanes), sums.seen[m]));
        store(o + at + m * kLanes, fma(d[m], all(t[token].kq), sums.out[m]));
      }
      const float* k = block.k + int64_t{token} * s.kp;
      if (token + 1 < n)
        sums = pass<true, true>(S, s.kp, t[token].a, k, d, t[token + 1].ak, t[token + 1].aq);
      else
        pass<true, false>(S, s.kp, t[token].a, k, d, nullptr, nullptr);
    }
  }
}

}  // namespace
}  // namespace lathe
