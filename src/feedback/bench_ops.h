#pragma once

#include <functional>
#include <vector>

#include "feedback/bench_life.h"
#include "feedback/number_row.h"

namespace lathe {

struct BenchReport {
  std::vector<NumberRow> rows;       // in the order of the plan
  std::vector<std::string> refused;  // faster than the machine can be: the measurement or the work model is wrong
  int64_t rotated_bytes = 0;
};

// Starts a process life and returns its timings; `life` counts from 0.
using StartLife = std::function<Result<std::vector<LifeTiming>>(int life)>;

// Medians over `options.lives` lives, roofs from the ceilings of the same lives, errors against the oracle.
Result<BenchReport> bench_ops(const std::vector<BenchItem>& plan, const BenchOptions& options, const StartLife& start);

}  // namespace lathe
