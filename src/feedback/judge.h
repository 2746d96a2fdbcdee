#pragma once

#include <string>

#include "ops/workload.h"

// Compares an operator's output with what it should be. Both views lie in host memory and have one shape and dtype.

namespace lathe {

struct Judgement {
  double error_ratio = 0;  // RMS(actual - expected)/RMS(expected); of integers the share that differs
  std::string fault;       // why the output is wrong, with the worst element; empty: it is right
};

// Right means: NaN and infinity at the same places; the error ratio within tolerance; and no single element off by more
// than kElementSlack tolerances of its own size plus the field's RMS, so that one bad block can't hide in a large
// field. Tolerance 0 demands equal values. Integers must be equal but for a share of `open_ties`.
Judgement judge(const FieldView& expected, const FieldView& actual, double tolerance, double open_ties = 0);

// bf16 rounding alone makes single errors of 6 times its own RMS ratio; sums of products tail off like a Gaussian.
inline constexpr double kElementSlack = 30;

// Index of the first row whose bytes differ, or -1.
int64_t first_different_row(const FieldView& a, const FieldView& b);

}  // namespace lathe
