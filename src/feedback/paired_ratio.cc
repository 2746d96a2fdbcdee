#include "feedback/paired_ratio.h"

#include <algorithm>
#include <cmath>

namespace lathe {

PairedRatio paired_ratio(std::vector<double> d) {
  std::sort(d.begin(), d.end());
  const int n = static_cast<int>(d.size());
  // The largest k such that at most k - 1 of n fair coins fall on one side with probability 2 % or less.
  double below = 0, term = std::pow(0.5, n);
  int k = 0;
  while (k < n / 2 && below + term <= 0.02) {
    below += term;
    ++k;
    term *= static_cast<double>(n - k + 1) / k;
  }
  const int low = std::max(k - 1, 0);
  const double median = n % 2 ? d[n / 2] : (d[n / 2 - 1] + d[n / 2]) / 2;
  return {std::exp(median), std::exp(d[low]), std::exp(d[n - 1 - low]), n};
}

}  // namespace lathe
