#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// Cut against uncut: kda_scan over segments and kda_prefill over the whole, both through their doors, on the same raw
// rows of one sequence of one head of 128 x 128. Half of the channels keep what they hold for thousands of tokens: with
// gates that forget, a segment's map is zero, and any map would pass.
struct KdaScanError {
  std::string variant;
  double state = 0, y = 0;  // RMS(err)/RMS(uncut)
};
Result<std::vector<KdaScanError>> kda_scan_errors(const std::vector<std::string>& variants, int64_t tokens,
                                                  int segments, int threads, uint64_t seed);

}  // namespace lathe
