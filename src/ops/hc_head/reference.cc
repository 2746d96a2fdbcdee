#include <cmath>
#include <vector>

#include "ops/element.h"
#include "ops/hc_head/variants.h"

// Doubles throughout: the judge must be more exact than anything it judges.
namespace lathe::reference {

namespace {

// X' of a row, [S·hidden], rounded.
std::vector<double> mixed_streams(const HcHeadArgs& a, int64_t row) {
  const int64_t hidden = a.h.width, S = a.copies;
  std::vector<double> X(S * hidden);
  for (int64_t s = 0; s < S; ++s)
    for (int64_t i = 0; i < hidden; ++i) {
      double x = double{a.post[row * S + s]} * load(a.y, row, i);
      for (int64_t j = 0; j < S; ++j) x += double{a.comb[(row * S + j) * S + s]} * load(a.streams, row, j * hidden + i);
      X[s * hidden + i] = rounded(x, a.streams_out.dtype);
    }
  return X;
}

}  // namespace

Status hc_head(OpContext&, const HcHeadArgs& a) {
  const int64_t hidden = a.h.width;
  for (int64_t row = 0; row < a.h.rows; ++row) {
    const std::vector<double> X = mixed_streams(a, row);
    std::vector<double> v(hidden);
    double square = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      for (int s = 0; s < a.copies; ++s) {
        v[i] += X[s * hidden + i] / a.copies;
        store(a.streams_out, row, s * hidden + i, X[s * hidden + i]);
      }
      square += v[i] * v[i];
    }
    const double r = 1 / std::sqrt(square / static_cast<double>(hidden) + a.norm_eps);
    for (int64_t i = 0; i < hidden; ++i) store(a.h, row, i, a.norm_weight[i] * v[i] * r);
  }
  return Status::ok();
}

}  // namespace lathe::reference
