#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Rules about things that are counted, not timed.

namespace lathe {

// No failure in n independent trials: the rate is below this, 95 of 100 times.
double failure_rate_bound(int64_t trials);

// The highest of these quantiles that so many requests can carry: 20/(1 - q) are needed, 2,000 for p99. 0.5 always.
double highest_quantile(int64_t requests);

// Is something that fails now and then better or worse than two sealed rates? Decided as soon as it can be (Wald).
enum class RateVerdict { kGoesOn, kAtMostLow, kAtLeastHigh };
RateVerdict sequential_rate(int64_t trials, int64_t failures, double low, double high, double error = 0.05);

// Metrics that are the same in every run: two equal runs an arm decide, and a difference inside an arm is a finding.
struct CountVerdict {
  bool steady = true, equal = true;
  std::string what;
};
CountVerdict compare_counts(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

}  // namespace lathe
