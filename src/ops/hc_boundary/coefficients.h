#pragma once

#include <cstdint>

#include "ops/hc_boundary/streams.h"

// The mapping's logits to pre, post and comb, for as many rows at once as Lanes has lanes: a lane is a row, so that the
// forty divisions of Sinkhorn's iteration, each waiting for the last, are those of all rows together.

namespace lathe {
namespace {

struct Coefficients {
  Lanes::V pre[kMaxCopies], post[kMaxCopies], comb[kMaxCopies * kMaxCopies];
};

inline Lanes::V sigmoid(Lanes::V x) { return Lanes::set(1) / (Lanes::set(1) + Lanes::exp(Lanes::zero() - x)); }

// m[i] /= their sum + eps, for i = start, start + step, ...
template <int kCopies>
void divide_by_sum(Lanes::V* m, int copies, int start, int step, float eps) {
  if constexpr (kCopies > 0) copies = kCopies;
  Lanes::V sum = m[start];
  for (int i = 1; i < copies; ++i) sum = sum + m[start + i * step];
  const Lanes::V inverse = Lanes::set(1) / (sum + Lanes::set(eps));
  for (int i = 0; i < copies; ++i) m[start + i * step] = m[start + i * step] * inverse;
}

template <int kCopies>
void sinkhorn(Lanes::V* m, int copies, int iterations, float eps) {
  if constexpr (kCopies > 0) copies = kCopies;
  for (int j = 0; j < copies; ++j) {
    Lanes::V* row = m + j * copies;
    Lanes::V top = row[0];
    for (int s = 1; s < copies; ++s) top = Lanes::max(top, row[s]);
    for (int s = 0; s < copies; ++s) row[s] = Lanes::exp(row[s] - top);
    divide_by_sum<kCopies>(m, copies, j * copies, 1, 0);
    for (int s = 0; s < copies; ++s) row[s] = row[s] + Lanes::set(eps);
  }
  for (int s = 0; s < copies; ++s) divide_by_sum<kCopies>(m, copies, s, copies, eps);
  for (int i = 1; i < iterations; ++i) {
    for (int j = 0; j < copies; ++j) divide_by_sum<kCopies>(m, copies, j * copies, 1, eps);
    for (int s = 0; s < copies; ++s) divide_by_sum<kCopies>(m, copies, s, copies, eps);
  }
}

// m: [2S + S²][kCount], logits of a row in its lane, before scale and base.
inline void coefficients(const float* m, int copies, const float* scale, const float* base, int iterations, float eps,
                         Coefficients& c) {
  using V = Lanes::V;
  auto logit = [&](int i, int kind) {
    return Lanes::fma(Lanes::load(m + i * Lanes::kCount), Lanes::set(scale[kind]), Lanes::set(base[i]));
  };
  for (int s = 0; s < copies; ++s) {
    c.pre[s] = sigmoid(logit(s, 0)) + Lanes::set(eps);
    c.post[s] = Lanes::set(2) * sigmoid(logit(copies + s, 1));
  }
  if (copies == 4) {  // in registers
    V comb[16];
    for (int i = 0; i < 16; ++i) comb[i] = logit(8 + i, 2);
    sinkhorn<4>(comb, 4, iterations, eps);
    for (int i = 0; i < 16; ++i) c.comb[i] = comb[i];
    return;
  }
  for (int i = 0; i < copies * copies; ++i) c.comb[i] = logit(2 * copies + i, 2);
  sinkhorn<0>(c.comb, copies, iterations, eps);
}

}  // namespace
}  // namespace lathe
