#pragma once

#include <vector>

#include "feedback/kda_tokens.h"

namespace lathe {

// The recurrence of one head in doubles, token by token, on a state kept as [K][V] so that no sum runs across a vector.
class KdaOracleState {
 public:
  KdaOracleState() : S(kKdaTokenDim * kKdaTokenDim), seen_(kKdaTokenDim), d_(kKdaTokenDim) {}

  // With values zero, a state that begins as I becomes Aᵀ. o [128], or nullptr.
  void step(const KdaTokens& tokens, int token, bool with_values, double* o);
  void set_identity();

  std::vector<double> S;

 private:
  std::vector<double> seen_, d_;
};

// Sums of squares of an error and of what it is held against.
struct ErrorRatio {
  double error = 0, reference = 0;
  void add(double value, double oracle) { error += (value - oracle) * (value - oracle), reference += oracle * oracle; }
  double value() const;
};

}  // namespace lathe
