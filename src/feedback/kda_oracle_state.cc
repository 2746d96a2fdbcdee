#include "feedback/kda_oracle_state.h"

#include <algorithm>
#include <cmath>

namespace lathe {

void KdaOracleState::set_identity() {
  std::fill(S.begin(), S.end(), 0.0);
  for (int i = 0; i < kKdaTokenDim; ++i) S[i * kKdaTokenDim + i] = 1;
}

void KdaOracleState::step(const KdaTokens& tokens, int token, bool with_values, double* o) {
  const int64_t at = int64_t{token} * kKdaTokenDim;
  std::fill(seen_.begin(), seen_.end(), 0.0);
  for (int i = 0; i < kKdaTokenDim; ++i) {
    const double a = std::exp(double{tokens.g[at + i]}), k = tokens.k[at + i];
    double* row = &S[i * kKdaTokenDim];
    for (int j = 0; j < kKdaTokenDim; ++j) row[j] *= a, seen_[j] += row[j] * k;
  }
  for (int j = 0; j < kKdaTokenDim; ++j) d_[j] = tokens.b[token] * ((with_values ? tokens.v[at + j] : 0) - seen_[j]);
  if (o) std::fill_n(o, kKdaTokenDim, 0.0);
  for (int i = 0; i < kKdaTokenDim; ++i) {
    const double k = tokens.k[at + i], q = tokens.q[at + i];
    double* row = &S[i * kKdaTokenDim];
    if (o)
      for (int j = 0; j < kKdaTokenDim; ++j) row[j] += d_[j] * k, o[j] += row[j] * q;
    else
      for (int j = 0; j < kKdaTokenDim; ++j) row[j] += d_[j] * k;
  }
}

double ErrorRatio::value() const {
  if (std::isnan(error)) return HUGE_VAL;
  return error == 0 ? 0 : std::sqrt(error / reference);
}

}  // namespace lathe
