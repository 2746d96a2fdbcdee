#pragma once

// Part of steps_body.h: needs the lanes of an instruction set, and is local to the file that includes it.

#include <cstdint>

#include "ops/kda_prefill/steps.h"

namespace lathe {
namespace {

constexpr int kChunk = kKdaChunk;
constexpr int kColumns = 2 * kLanes;  // of a block of a tile
static_assert(kChunk % kLanes == 0);

// Elementary functions, sums, and loads of what may end inside a vector.

// (exp(r) - 1 - r)/r² on ±ln2/2: Chebyshev nodes; error of exp 1e-8.
constexpr float kExp[5] = {0.5f, 0.1666657684599398f, 0.04166655443768795f, 0.00836320297157575f,
                           0.001392621346613538f};
constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// Several vectors at a time, step by step: the chains of a single one are so long that the scheduler would hold no more
// than two or three of them, and leave the pipes half empty.
constexpr int kAbreast = 4;
struct Abreast {
  Lanes x[kAbreast];
};
#define LATHE_ABREAST for (int i = 0; i < kAbreast; ++i)

inline Abreast exponential(Abreast v) {
  Abreast n, p, r2;
  LATHE_ABREAST v.x[i] = min(all(88), max(all(-88), v.x[i]));  // n within ±127
  LATHE_ABREAST n.x[i] = nearest(mul(v.x[i], all(kLog2E)));
  LATHE_ABREAST v.x[i] = fnma(n.x[i], all(kLn2High), v.x[i]);
  LATHE_ABREAST v.x[i] = fnma(n.x[i], all(kLn2Low), v.x[i]);  // r = x - n·ln 2, in two parts
  LATHE_ABREAST r2.x[i] = mul(v.x[i], v.x[i]);
  LATHE_ABREAST p.x[i] = fma(v.x[i], all(kExp[4]), all(kExp[3]));
  for (int c = 2; c >= 0; --c) LATHE_ABREAST p.x[i] = fma(v.x[i], p.x[i], all(kExp[c]));
  LATHE_ABREAST p.x[i] = add(all(1), fma(r2.x[i], p.x[i], v.x[i]));
  LATHE_ABREAST p.x[i] = times_power_of_two(p.x[i], n.x[i]);
  return p;
}

inline Lanes exponential(Lanes x) {
  Abreast v;
  LATHE_ABREAST v.x[i] = x;
  return exponential(v).x[0];
}

inline Abreast sigmoid(Abreast v) {
  Abreast shifted, n, p, r2;
  LATHE_ABREAST v.x[i] = min(all(87), max(all(-87), v.x[i]));
  LATHE_ABREAST shifted.x[i] = fma(v.x[i], all(-kLog2E), all(kShifter));
  LATHE_ABREAST n.x[i] = sub(shifted.x[i], all(kShifter));
  LATHE_ABREAST v.x[i] = fma(n.x[i], all(kLn2High), v.x[i]);
  LATHE_ABREAST v.x[i] = fma(n.x[i], all(kLn2Low), v.x[i]);  // exp(-x) = 2^n·exp(-r)
  LATHE_ABREAST r2.x[i] = mul(v.x[i], v.x[i]);
  LATHE_ABREAST p.x[i] = fnma(v.x[i], all(kExp[4]), all(kExp[3]));
  for (int c = 2; c >= 0; --c) LATHE_ABREAST p.x[i] = fnma(v.x[i], p.x[i], all(kExp[c]));
  LATHE_ABREAST p.x[i] = fma(r2.x[i], p.x[i], sub(all(1), v.x[i]));
  LATHE_ABREAST p.x[i] = add(all(1), times_shifted_power(p.x[i], shifted.x[i]));
  LATHE_ABREAST p.x[i] = reciprocal(p.x[i]);
  return p;
}

inline Lanes softplus(Lanes x) {
  const Lanes magnitude = max(x, sub(zero(), x));
  const Lanes y = exponential(sub(zero(), magnitude));
  // log(1 + y) = 2·atanh(s), s = y/(2 + y) <= 1/3
  const Lanes s = mul(y, reciprocal(add(all(2), y))), s2 = mul(s, s);
  Lanes p = all(1.0f / 17);
  for (int odd = 15; odd >= 3; odd -= 2) p = fma(p, s2, all(1 / static_cast<float>(odd)));
  p = fma(mul(p, s2), s, s);
  return add(max(zero(), x), add(p, p));
}

// The gate: log decay from f + dt_bias.
inline Abreast log_gate(Abreast v, float rate, float bound) {
  if (bound < 0) {
    LATHE_ABREAST v.x[i] = mul(all(rate), v.x[i]);
    v = sigmoid(v);
    LATHE_ABREAST v.x[i] = mul(all(bound), v.x[i]);
  } else {
    LATHE_ABREAST v.x[i] = mul(all(-rate), softplus(v.x[i]));
  }
  return v;
}

inline float sum(Lanes x) {
  float sums[4];
  sum_each(x, x, x, x, sums);
  return sums[0];
}

inline Lanes rounded_to(const float*, Lanes x) { return x; }
inline Lanes rounded_to(const uint16_t*, Lanes x) { return shortened<16>(x); }

template <class T>
inline Lanes load_up_to(const T* p, int n) {
  return n >= kLanes ? load(p) : load_first(p, n);
}
template <class T>
inline void store_up_to(T* p, Lanes x, int n) {
  if (n >= kLanes)
    store(p, x);
  else
    store_first(p, x, n);
}
inline int at_most(int n, int most) { return n < most ? n : most; }
// A row of `count` values as vectors: vector i of it, or zero behind its end; and back.
template <class T>
inline Lanes load_part(const T* row, int i, int count) {
  return i * kLanes < count ? load_up_to(row + i * kLanes, count - i * kLanes) : zero();
}
template <class T>
inline void store_part(T* row, Lanes x, int i, int count) {
  if (i * kLanes < count) store_up_to(row + i * kLanes, x, count - i * kLanes);
}

}  // namespace
}  // namespace lathe
