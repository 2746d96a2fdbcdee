#include "feedback/counting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lathe {

double failure_rate_bound(int64_t trials) { return trials > 0 ? std::min(1.0, 3.0 / static_cast<double>(trials)) : 1; }

double highest_quantile(int64_t requests) {
  for (double q : {0.999, 0.99, 0.95, 0.9})
    if (static_cast<double>(requests) * (1 - q) >= 20 - 1e-6) return q;
  return 0.5;
}

RateVerdict sequential_rate(int64_t trials, int64_t failures, double low, double high, double error) {
  LATHE_CHECK(0 < low && low < high && high < 1 && failures <= trials);
  const double evidence = static_cast<double>(failures) * std::log(high / low) +
                          static_cast<double>(trials - failures) * std::log((1 - high) / (1 - low));
  const double bound = std::log((1 - error) / error);
  return evidence >= bound    ? RateVerdict::kAtLeastHigh
         : evidence <= -bound ? RateVerdict::kAtMostLow
                              : RateVerdict::kGoesOn;
}

CountVerdict compare_counts(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  LATHE_CHECK(a.size() >= 2 && b.size() >= 2);
  for (const auto* arm : {&a, &b})
    if (std::adjacent_find(arm->begin(), arm->end(), std::not_equal_to<>()) != arm->end())
      return {false, false, fmt::format("{} counts {} in equal runs", arm == &a ? "A" : "B", fmt::join(*arm, ", "))};
  return {true, a[0] == b[0], a[0] == b[0] ? "" : fmt::format("{} against {}", a[0], b[0])};
}

}  // namespace lathe
