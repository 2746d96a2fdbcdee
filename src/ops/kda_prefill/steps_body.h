// The source of steps.h for any vector type: included by steps_<isa>.cc after the lanes. Everything is local to the
// including file, since the linker must never hand out code of one instruction set for another.

#include <cstdint>

#include "ops/kda_prefill/steps.h"

namespace lathe {
namespace {

constexpr int kChunk = kKdaChunk;
constexpr int kColumns = 2 * kLanes;  // of a block of a tile
static_assert(kChunk % kLanes == 0);

// --- functions of numbers

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

// --- from raw rows to what the recurrence reads

void taps(const KdaSizes& s, int width, const float* q, const float* k, const float* v, float* out) {
  const int64_t stride = 2 * s.kp + s.vp;
  struct Part {
    const float* from;
    int count, padded;
  };
  int64_t at = 0;
  const Part parts[3] = {{q, s.k, s.kp}, {k, s.k, s.kp}, {v, s.v, s.vp}};
  for (const Part& part : parts) {
    for (int c = 0; c < part.padded; c += kLanes)
      for (int j = 0; j < width; ++j) {
        const float* from = part.from + int64_t{c} * width + j;
        float* to = out + j * stride + at + c;
        if (c + kLanes <= part.count) {
          store(to, load_strided(from, width));
        } else {
          store(to, zero());
          for (int i = 0; c + i < part.count; ++i) to[i] = from[int64_t{i} * width];
        }
      }
    at += part.padded;
  }
}

inline void fetch(const void* p) { __builtin_prefetch(p, 0, 2); }

template <class T>
inline Lanes raw_lanes(const void* row, int64_t at, int n) {
  return row ? load_up_to(static_cast<const T*>(row) + at, n) : zero();
}

// x·sigmoid(x), rounded to the rows' dtype, to `rows` rows of out.
template <class T>
inline void store_silu(Abreast v, int rows, float* out, int64_t out_stride) {
  const Abreast gate = sigmoid(v);
  LATHE_ABREAST v.x[i] = rounded_to(static_cast<const T*>(nullptr), mul(v.x[i], gate.x[i]));
  LATHE_ABREAST if (i < rows) store(out + i * out_stride, v.x[i]);
}

// kLanes channels of all tokens, n of which count; kWidth 0: any width.
template <class T, int kWidth>
inline void convolve_lanes(const KdaHeadSource& in, int64_t at, int n, const float* taps, int64_t tap_stride,
                           float* out, int64_t out_stride) {
  Lanes x[kWidth + kAbreast], w[kWidth + 1];  // a window that moves over the rows
  for (int j = 0; j < kWidth; ++j) {
    w[j] = load(taps + j * tap_stride);
    if (j + 1 < kWidth) x[j] = raw_lanes<T>(in.raw[j], at, n);
  }
  for (int t = 0; t < in.tokens; t += kAbreast) {
    const int rows = at_most(in.tokens - t, kAbreast);
    Abreast sums;
    if constexpr (kWidth > 0) {
      LATHE_ABREAST x[kWidth - 1 + i] = i < rows ? raw_lanes<T>(in.raw[t + i + kWidth - 1], at, n) : zero();
      LATHE_ABREAST sums.x[i] = mul(w[0], x[i]);
      for (int j = 1; j < kWidth; ++j) LATHE_ABREAST sums.x[i] = fma(w[j], x[i + j], sums.x[i]);
      for (int j = 0; j + 1 < kWidth; ++j) x[j] = x[j + kAbreast];
    } else {
      LATHE_ABREAST {
        sums.x[i] = zero();
        for (int j = 0; j < in.width && i < rows; ++j)
          sums.x[i] = fma(load(taps + j * tap_stride), raw_lanes<T>(in.raw[t + i + j], at, n), sums.x[i]);
      }
    }
    for (int i = t; i < at_most(t + kAbreast, in.ahead); ++i)
      fetch(static_cast<const T*>(in.raw[i + in.width - 1 + in.tokens]) + at);
    store_silu<T>(sums, rows, out + t * out_stride, out_stride);
  }
}

template <class T, int kWidth>
void convolve(const KdaHeadSource& in, int64_t at, int count, const float* taps, int64_t tap_stride, float* out,
              int64_t out_stride) {
  for (int c = 0; c < count; c += kLanes)
    convolve_lanes<T, kWidth>(in, at + c, count - c, taps + c, tap_stride, out + c, out_stride);
}

// x·scale/|x|
void normalise(float* x, int kp, float scale) {
  Lanes squares = zero();
  for (int i = 0; i < kp; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const Lanes factor = all(scale / __builtin_sqrtf(sum(squares) + 1e-6f));
  for (int i = 0; i < kp; i += kLanes) store(x + i, mul(load(x + i), factor));
}

template <class T>
void gates(const KdaSizes& s, const KdaHeadSource& in, const KdaBlock& out) {
  const int vectors = s.kp / kLanes;
  for (int t = 0; t < in.tokens; ++t) {
    const T* forget = static_cast<const T*>(in.forget) + t * in.forget_stride;
    float* g = out.g + int64_t{t} * s.kp;
    for (int c = 0; c < vectors; c += kAbreast) {
      Abreast v;
      LATHE_ABREAST v.x[i] = add(load_part(forget, c + i, s.k), load_part(in.dt_bias, c + i, s.k));
      if (t < in.ahead) LATHE_ABREAST fetch(forget + in.tokens * in.forget_stride + (c + i) * kLanes);
      v = log_gate(v, in.rate, in.bound);
      LATHE_ABREAST if (c + i < vectors) {
        if ((c + i + 1) * kLanes > s.k) store(g + (c + i) * kLanes, zero());
        store_part(g, v.x[i], c + i, s.k);
      }
    }
  }
  const T* beta = static_cast<const T*>(in.beta);
  for (int t = 0; t < in.tokens; t += kLanes) {
    const int n = at_most(in.tokens - t, kLanes);
    T logits[kLanes] = {};
    for (int i = 0; i < n; ++i) logits[i] = beta[(t + i) * in.beta_stride];
    Abreast v;
    LATHE_ABREAST v.x[i] = load(logits);
    store_first(out.b + t, rounded_to(beta, sigmoid(v).x[0]), n);
  }
}

template <class T, int kWidth>
void activate_rows(const KdaSizes& s, const KdaHeadSource& in, const KdaBlock& out) {
  const int64_t stride = 2 * s.kp + s.vp;
  for (int i = s.k / kLanes * kLanes; i < s.kp; i += kLanes)
    for (int t = 0; t < in.tokens; ++t)
      store(out.q + int64_t{t} * s.kp + i, zero()), store(out.k + int64_t{t} * s.kp + i, zero());
  for (int i = s.v / kLanes * kLanes; i < s.vp; i += kLanes)
    for (int t = 0; t < in.tokens; ++t) store(out.v + int64_t{t} * s.vp + i, zero());
  convolve<T, kWidth>(in, in.q_at, s.k, in.taps, stride, out.q, s.kp);
  convolve<T, kWidth>(in, in.k_at, s.k, in.taps + s.kp, stride, out.k, s.kp);
  convolve<T, kWidth>(in, in.v_at, s.v, in.taps + 2 * s.kp, stride, out.v, s.vp);
  const float query_scale = 1 / __builtin_sqrtf(static_cast<float>(s.k));
  for (int t = 0; t < in.tokens; ++t) {
    normalise(out.q + int64_t{t} * s.kp, s.kp, query_scale);
    normalise(out.k + int64_t{t} * s.kp, s.kp, 1);
  }
  gates<T>(s, in, out);
}

void activate(const KdaSizes& s, const KdaHeadSource& in, const KdaBlock& out) {
  const bool wide = in.dtype == DType::kF32, four = in.width == 4;
  if (wide && four)
    activate_rows<float, 4>(s, in, out);
  else if (wide)
    activate_rows<float, 0>(s, in, out);
  else if (four)
    activate_rows<uint16_t, 4>(s, in, out);
  else
    activate_rows<uint16_t, 0>(s, in, out);
}

template <class T>
void gated_norm_row(int v, const float* o, const T* gate, const float* weight, float eps, T* y) {
  Lanes squares = zero();
  for (int j = 0; j < v; j += kLanes) {
    const Lanes x = rounded_to(gate, load_up_to(o + j, v - j));
    squares = fma(x, x, squares);
  }
  const Lanes scale = all(1 / __builtin_sqrtf(sum(squares) / static_cast<float>(v) + eps));
  for (int c = 0; c * kLanes < v; c += kAbreast) {
    Abreast g;
    LATHE_ABREAST g.x[i] = load_part(gate, c + i, v);
    g = sigmoid(g);
    LATHE_ABREAST {
      const Lanes normed = mul(load_part(weight, c + i, v), mul(rounded_to(gate, load_part(o, c + i, v)), scale));
      store_part(y, mul(normed, g.x[i]), c + i, v);
    }
  }
}

void gated_norm(int v, DType dtype, const float* o, const void* gate, const float* weight, float eps, void* y) {
  if (dtype == DType::kF32)
    gated_norm_row(v, o, static_cast<const float*>(gate), weight, eps, static_cast<float*>(y));
  else
    gated_norm_row(v, o, static_cast<const uint16_t*>(gate), weight, eps, static_cast<uint16_t*>(y));
}

// --- token by token

void vectors(const KdaSizes& s, const KdaBlock& block, int token, KdaVectors& out) {
  const float *q = block.q + int64_t{token} * s.kp, *k = block.k + int64_t{token} * s.kp,
              *g = block.g + int64_t{token} * s.kp;
  Lanes kq = zero();
  for (int i = 0; i < s.kp; i += kLanes) {
    const Lanes a = exponential(load(g + i)), key = load(k + i), query = load(q + i);
    store(out.a + i, a), store(out.ak + i, mul(a, key)), store(out.aq + i, mul(a, query));
    kq = fma(key, query, kq);
  }
  out.kq = sum(kq);
}

// Two sums over each of four rows. Lane l adds channels l, l + kLanes, ...; then the lanes are added as sum_each does:
// `pass` below adds in the same order.
template <int kFixed>
inline void four_rows(const float* const* rows, int K, const float* x, const float* y, float* x_sums, float* y_sums) {
  const int channels = kFixed ? kFixed : K;
  Lanes a[4] = {zero(), zero(), zero(), zero()}, b[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < channels; i += kLanes) {
    const Lanes xi = load(x + i), yi = load(y + i);
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
    four_rows<kFixed>(rows, K, t.ak, t.aq, seen, out);
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

// --- products. Each sum runs over the inner index in ascending order, so no tiling changes a bit.

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

// c [kRows, 2·kLanes] = Diag(decay)·c + aᵀ·b, a [inner, kRows], b [inner, 2·kLanes]; decay nullptr: 1
template <int kRows, bool kTf32A, bool kTf32B>
inline void update_tile(const float* decay, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                        int inner, float* c, int64_t c_stride) {
  Lanes sum[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < 2; ++n) {
      sum[r][n] = load(c + r * c_stride + n * kLanes);
      if (decay) sum[r][n] = mul(all(decay[r]), sum[r][n]);
    }
  for (int i = 0; i < inner; ++i) {
    const Lanes b0 = operand<kTf32B>(load(b + i * b_stride)), b1 = operand<kTf32B>(load(b + i * b_stride + kLanes));
    for (int r = 0; r < kRows; ++r) {
      const Lanes ar = operand<kTf32A>(all(a[i * a_stride + r]));
      sum[r][0] = fma(ar, b0, sum[r][0]), sum[r][1] = fma(ar, b1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < 2; ++n) store(c + r * c_stride + n * kLanes, sum[r][n]);
}

// --- chunks

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

// --- tiles

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

// --- replay

template <int kFixed>
void products_of_rows(const KdaSizes& s, const float* state, const float* const* x, int n, float* const* out) {
  const int K = kFixed ? kFixed : s.k;
  for (int j = 0; j < s.v; j += 4) {
    const float* rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = state + int64_t{at_most(j + r, s.v - 1)} * K;
    for (int m = 0; m < n; m += 2) {
      const int other = at_most(m + 1, n - 1);
      float first[4], second[4];
      four_rows<kFixed>(rows, K, x[m], x[other], first, second);
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

void fold(const KdaSizes& s, float* state, const float* decay, const float* d, const float* keys, int records) {
  for (int j = 0; j < s.v; j += 4)
    for (int i = 0; i < s.k; i += kLanes) {
      const int n = at_most(s.k - i, kLanes), rows = at_most(s.v - j, 4);
      float* cell = state + int64_t{j} * s.k + i;
      Lanes sum[4];
      for (int r = 0; r < 4; ++r)
        sum[r] = r < rows ? mul(load_up_to(cell + int64_t{r} * s.k, n), load(decay + i)) : zero();
      for (int m = 0; m < records; ++m) {
        const Lanes key = load(keys + int64_t{m} * s.kp + i);
        for (int r = 0; r < 4; ++r) sum[r] = fma(all(d[int64_t{m} * s.vp + j + r]), key, sum[r]);
      }
      for (int r = 0; r < rows; ++r) store_up_to(cell + int64_t{r} * s.k, sum[r], n);
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

constexpr KdaSteps kSteps = {
    .columns = kColumns,
    .taps = taps,
    .activate = activate,
    .gated_norm = gated_norm,
    .vectors = vectors,
    .decode = decode,
    .tokens = tokens,
    .chunk = make_chunk<false>,
    .advance = advance_block<false>,
    .chunk_tf32 = make_chunk<true>,
    .advance_tf32 = advance_block<true>,
    .load_block = load_block,
    .store_block = store_block,
    .join = join,
    .products = products,
    .fold = fold,
    .combine = combine,
    .exponential = exponentials,
};

}  // namespace
}  // namespace lathe
