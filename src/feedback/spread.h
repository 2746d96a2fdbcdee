#pragma once

#include <vector>

namespace lathe {

// Median, and half the interquartile range (quartiles interpolated between neighbours). Values must not be empty.
struct Spread {
  double median = 0, half_iqr = 0;
};
Spread spread_of(std::vector<double> values);

}  // namespace lathe
