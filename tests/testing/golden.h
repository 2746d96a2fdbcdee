#pragma once

#include <string>
#include <vector>

#include "base/safetensors.h"

// Golden tensors and small models of tests/data, or of the reference set beside the repository where that is present.

namespace lathe::testing {

// Path of a fixture ("golden/ops_kda.safetensors"), or "" where it is at neither place.
std::string fixture(const std::string& relative);
// Path of a file of the repository.
std::string source_file(const std::string& relative);

// A file of this tree, by its path from the root.
std::string source_path(const std::string& relative);

// A tensor's values; the test stops with a message if it isn't there. Any dtype of a file is converted.
std::vector<float> floats(const Safetensors& file, const std::string& name);
std::vector<int32_t> ints(const Safetensors& file, const std::string& name);
std::vector<int64_t> shape(const Safetensors& file, const std::string& name);

// RMS(a - b)/RMS(b); infinity where NaNs or sizes differ.
double rms_ratio(const std::vector<float>& a, const std::vector<float>& b);

// Opens a golden file as `var`, or skips the test aloud.
#define LATHE_GOLDEN(var, relative)                                                                      \
  const std::string var##_path = ::lathe::testing::fixture(relative);                                    \
  if (var##_path.empty()) GTEST_SKIP() << relative << " is in neither tests/data nor the reference set"; \
  const ::lathe::Safetensors var = ::lathe::Safetensors::open(var##_path).value()

}  // namespace lathe::testing
