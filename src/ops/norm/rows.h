#pragma once

#include <algorithm>
#include <cmath>

#include "ops/norm/norm.h"

// Norms of rows over a file's Lanes (ops/lanes_*.h, which it includes first). A row comes from memory once and stays in
// L1 for the passes after it; sums run in kSums vectors, in an order that depends on the width alone.

namespace lathe {
namespace {

constexpr int kSums = 4;  // covers the latency of a sum

// f(float{}) or f(bf16{}): a dtype becomes a type, once a call.
template <class F>
auto with_type(DType t, F&& f) {
  return t == DType::kBF16 ? f(bf16{}) : f(float{});
}

// The sum of term(x[i]) over a row; lanes past its end count as term of nothing: zero.
template <class T, class Term>
float sum_of(const T* x, int64_t width, Term&& term) {
  constexpr int64_t kStep = kSums * Lanes::kCount;
  Lanes::V sum[kSums];
  for (Lanes::V& s : sum) s = Lanes::zero();
  int64_t i = 0;
  for (; i + kStep <= width; i += kStep)
    for (int j = 0; j < kSums; ++j) sum[j] = term(sum[j], Lanes::load(x + i + j * Lanes::kCount));
  for (; i + Lanes::kCount <= width; i += Lanes::kCount) sum[0] = term(sum[0], Lanes::load(x + i));
  float total = Lanes::sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
  if (i < width) {
    // The tail by itself: of a centred square, the lanes past the end would not be zero.
    float tail[Lanes::kCount];
    Lanes::store(tail, term(Lanes::zero(), Lanes::load(x + i, static_cast<int>(width - i))));
    for (int64_t j = 0; j < width - i; ++j) total += tail[j];
  }
  return total;
}

// y[i] = f(i, x[i]); f takes and gives whole vectors, weights past the end of a row are zero.
template <class T, class U, class F>
void map_row(const T* x, U* y, int64_t width, F&& f) {
  int64_t i = 0;
  for (; i + Lanes::kCount <= width; i += Lanes::kCount)
    Lanes::store(y + i, f(Lanes::load(x + i), [&](const float* w) { return Lanes::load(w + i); }));
  if (const int n = static_cast<int>(width - i); n > 0)
    Lanes::store(y + i, f(Lanes::load(x + i, n), [&](const float* w) { return Lanes::load(w + i, n); }), n);
}

// gelu(x) = max(x, 0) - |x|·erfc(|x|/sqrt 2)/2, with erfc by Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline Lanes::V gelu(Lanes::V x) {
  using L = Lanes;
  const L::V size = L::max(x, L::zero() - x), z = size * L::set(0.70710678f);
  const L::V t = L::set(1) / L::fma(L::set(0.3275911f), z, L::set(1));
  L::V p = L::fma(t, L::set(1.061405429f), L::set(-1.453152027f));
  p = L::fma(p, t, L::set(1.421413741f));
  p = L::fma(p, t, L::set(-0.284496736f));
  p = L::fma(p, t, L::set(0.254829592f));
  return L::max(x, L::zero()) - L::set(0.5f) * size * (p * t * L::exp(L::zero() - z * z));
}

template <class T, class U>
void rms_row(const NormArgs& a, const T* x, U* y) {
  const int64_t width = a.x.width;
  const float square = sum_of(x, width, [](Lanes::V sum, Lanes::V v) { return Lanes::fma(v, v, sum); });
  const Lanes::V scale = Lanes::set(1 / std::sqrt(square / static_cast<float>(width) + a.eps));
  map_row(x, y, width, [&](Lanes::V v, auto&& at) {
    Lanes::V normed = v * scale;
    if constexpr (sizeof(U) == 2) normed = Lanes::round_bf16(normed);
    const Lanes::V out = at(a.weight.data) * normed;
    return a.gelu ? gelu(out) : out;
  });
}

template <class T, class U>
void layer_row(const NormArgs& a, const T* x, U* y) {
  const int64_t width = a.x.width;
  const float mean = sum_of(x, width, [](Lanes::V sum, Lanes::V v) { return sum + v; }) / static_cast<float>(width);
  const Lanes::V centre = Lanes::set(mean);
  const float square =
      sum_of(x, width, [&](Lanes::V sum, Lanes::V v) { return Lanes::fma(v - centre, v - centre, sum); });
  const Lanes::V scale = Lanes::set(1 / std::sqrt(square / static_cast<float>(width) + a.eps));
  map_row(x, y, width, [&](Lanes::V v, auto&& at) {
    const Lanes::V out = Lanes::fma(at(a.weight.data), (v - centre) * scale, at(a.bias.data));
    return a.gelu ? gelu(out) : out;
  });
}

inline Status norm_rows(OpContext& ctx, const NormArgs& a) {
  const int64_t rows = a.x.rows;
  // 32K values a task: a wake-up of the pool costs about as much as it takes to norm them.
  const int64_t per_task = std::max<int64_t>(1, 32768 / (a.x.width + 1));
  ctx.pool->run((rows + per_task - 1) / per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    with_type(a.x.dtype, [&](auto t) {
      with_type(a.y.dtype, [&](auto u) {
        for (int64_t r = task * per_task; r < end; ++r) {
          const auto* x = static_cast<const decltype(t)*>(a.x.data) + r * a.x.stride;
          auto* y = static_cast<decltype(u)*>(a.y.data) + r * a.y.stride;
          a.kind == NormKind::kRms ? rms_row(a, x, y) : layer_row(a, x, y);
        }
      });
    });
  });
  return Status::ok();
}

}  // namespace
}  // namespace lathe
