#pragma once

#include <string>
#include <vector>

#include "base/view.h"

// Golden tensors and small models of tests/data, or of the reference set beside the repository where that is present.

namespace lathe::testing {

// Path of a fixture ("golden/ops_kda.safetensors"), or "" where it is at neither place.
std::string fixture(const std::string& relative);

// RMS(a - b)/RMS(b); infinity where NaNs differ.
double rms_ratio(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lathe::testing
