#include <cmath>
#include <vector>

#include "ops/element.h"
#include "ops/hc_boundary/variants.h"

// Doubles throughout: the judge must be more exact than anything it judges.
namespace lathe::reference {

namespace {

using Doubles = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// X' of a row, [S·hidden], rounded.
Doubles mixed_streams(const HcBoundaryArgs& a, int64_t row) {
  const int64_t hidden = a.u.width, S = a.copies;
  Doubles X(S * hidden);
  for (int64_t s = 0; s < S; ++s)
    for (int64_t i = 0; i < hidden; ++i) {
      double x = 0;
      if (a.y.empty()) {
        x = load(a.streams, row, s * hidden + i);
      } else {
        for (int64_t j = 0; j < S; ++j)
          x += double{a.comb[(row * S + j) * S + s]} * load(a.streams, row, j * hidden + i);
        x += double{a.post[row * S + s]} * load(a.y, row, i);
      }
      X[s * hidden + i] = rounded(x, a.streams_out.dtype);
    }
  return X;
}

// m = (X'·fnᵀ)·rsqrt(mean(X'²) + eps), [n]
Doubles mapping(const HcBoundaryArgs& a, const Doubles& X) {
  double square = 0;
  for (double x : X) square += x * x;
  const double r = 1 / std::sqrt(square / static_cast<double>(X.size()) + a.norm_eps);
  Doubles m(a.fn.out);
  for (int64_t o = 0; o < a.fn.out; ++o) {
    for (int64_t i = 0; i < a.fn.in; ++i) m[o] += load(a.fn, o, i) * X[i];
    m[o] *= r;
  }
  return m;
}

// logits [S, S] to a matrix whose rows and columns sum to one, nearly.
Doubles sinkhorn(const HcBoundaryArgs& a, Doubles C) {
  const int S = a.copies;
  for (int j = 0; j < S; ++j) {
    double top = C[j * S], sum = 0;
    for (int s = 0; s < S; ++s) top = std::max(top, C[j * S + s]);
    for (int s = 0; s < S; ++s) sum += C[j * S + s] = std::exp(C[j * S + s] - top);
    for (int s = 0; s < S; ++s) C[j * S + s] = C[j * S + s] / sum + a.hc_eps;
  }
  auto divide = [&](int count, int step, int start) {  // a row or a column by its sum
    double sum = a.hc_eps;
    for (int i = 0; i < count; ++i) sum += C[start + i * step];
    for (int i = 0; i < count; ++i) C[start + i * step] /= sum;
  };
  for (int s = 0; s < S; ++s) divide(S, S, s);
  for (int iteration = 1; iteration < a.sinkhorn_iters; ++iteration) {
    for (int j = 0; j < S; ++j) divide(S, 1, j * S);
    for (int s = 0; s < S; ++s) divide(S, S, s);
  }
  return C;
}

// The collapsed, normed row.
void store_collapsed(const HcBoundaryArgs& a, int64_t row, const Doubles& pre, const Doubles& X) {
  const int64_t hidden = a.u.width;
  Doubles v(hidden);
  double square = 0;
  for (int64_t i = 0; i < hidden; ++i) {
    for (int s = 0; s < a.copies; ++s) v[i] += pre[s] * X[s * hidden + i];
    square += v[i] * v[i];
  }
  const double r = 1 / std::sqrt(square / static_cast<double>(hidden) + a.norm_eps);
  for (int64_t i = 0; i < hidden; ++i) store(a.u, row, i, a.norm_weight[i] * v[i] * r);
}

}  // namespace

Status hc_boundary(OpContext&, const HcBoundaryArgs& a) {
  const int S = a.copies;
  for (int64_t row = 0; row < a.u.rows; ++row) {
    const Doubles X = mixed_streams(a, row);
    const Doubles m = mapping(a, X);
    Doubles pre(S), C(S * S);
    for (int s = 0; s < S; ++s) {
      pre[s] = sigmoid(m[s] * a.scale[0] + a.base[s]) + a.hc_eps;
      a.post_out[row * S + s] = static_cast<float>(2 * sigmoid(m[S + s] * a.scale[1] + a.base[S + s]));
    }
    for (int i = 0; i < S * S; ++i) C[i] = m[2 * S + i] * a.scale[2] + a.base[2 * S + i];
    C = sinkhorn(a, C);
    for (int i = 0; i < S * S; ++i) a.comb_out[row * S * S + i] = static_cast<float>(C[i]);
    for (int64_t i = 0; i < S * a.u.width; ++i) store(a.streams_out, row, i, X[i]);
    store_collapsed(a, row, pre, X);
  }
  return Status::ok();
}

}  // namespace lathe::reference
