#pragma once

#include <vector>

namespace lathe {

// Ratio of paired runs, with the interval in which its median lies with 96 % (order statistics of the blocks).
struct PairedRatio {
  double median = 1, low = 1, high = 1;
  int blocks = 0;
};

// Of differences of logarithms, one a block; at least 6 blocks, or no interval has 96 %.
PairedRatio paired_ratio(std::vector<double> log_differences);

}  // namespace lathe
