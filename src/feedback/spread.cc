#include "feedback/spread.h"

#include <algorithm>

#include "base/check.h"

namespace lathe {

Spread spread_of(std::vector<double> values) {
  LATHE_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const auto at = [&](double quantile) {
    const double place = quantile * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5), (at(0.75) - at(0.25)) / 2};
}

}  // namespace lathe
