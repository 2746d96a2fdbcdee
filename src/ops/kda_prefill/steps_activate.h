#pragma once

// Part of steps_body.h: needs the lanes of an instruction set, and is local to the file that includes it.

#include "ops/kda_prefill/steps_numbers.h"

namespace lathe {
namespace {

// From raw rows to what the recurrence reads, and from its output to y.

void taps(const KdaSizes& s, int width, const float* q, const float* k, const float* v, float* out) {
  const int64_t stride = 2 * s.kp + s.vp;
  struct Part {
    const float* from;
    int count, padded;
  };
  int64_t at = 0;
  const Part parts[3] = {{q, s.k, s.kp}, {k, s.k, s.kp}, {v, s.v, s.vp}};
  for (const Part& part : parts) {
    for (int c = 0; c < part.padded; c += kLanes) {
      if (width == 4 && c + kLanes <= part.count) {
        Lanes fours[4];
        load_fours(part.from + int64_t{c} * 4, fours);
        for (int j = 0; j < 4; ++j) store(out + j * stride + at + c, fours[j]);
        continue;
      }
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

// A single token: channels stand abreast instead. The same sums.
template <class T, int kWidth>
void convolve_token(const KdaHeadSource& in, int64_t at, int count, const float* taps, int64_t tap_stride, float* out) {
  const int width = kWidth > 0 ? kWidth : in.width;
  for (int c = 0; c < count; c += kAbreast * kLanes) {
    Abreast sums;
    LATHE_ABREAST {
      const int first = c + i * kLanes;
      sums.x[i] = zero();
      for (int j = 0; j < width && first < count; ++j) {
        const Lanes x = raw_lanes<T>(in.raw[j], at + first, count - first), tap = load(taps + j * tap_stride + first);
        sums.x[i] = kWidth > 0 && j == 0 ? mul(tap, x) : fma(tap, x, sums.x[i]);
      }
    }
    store_silu<T>(sums, at_most((count - c + kLanes - 1) / kLanes, kAbreast), out + c, kLanes);
  }
}

template <class T, int kWidth>
void convolve(const KdaHeadSource& in, int64_t at, int count, const float* taps, int64_t tap_stride, float* out,
              int64_t out_stride) {
  if (in.tokens == 1 && in.ahead == 0) return convolve_token<T, kWidth>(in, at, count, taps, tap_stride, out);
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

}  // namespace
}  // namespace lathe
