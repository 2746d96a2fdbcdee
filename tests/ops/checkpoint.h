#pragma once

#include "ops/host.h"
#include "testing/golden.h"

// Matrices as operators take them, from a golden file or from values in a test.

namespace lathe::testing {

inline Weight weight(Host& host, int64_t out, int64_t in, const std::vector<float>& values, DType dtype = DType::kF32) {
  return {.data = host.rows(out, in, values, dtype).data, .dtype = dtype, .out = out, .in = in, .stride = in};
}

// Matrix `index` of a tensor [.., out, in].
inline Weight weight(Host& host, const Safetensors& file, const std::string& name, int64_t index = 0) {
  const std::vector<int64_t> s = shape(file, name);
  const int64_t out = s[s.size() - 2], in = s.back();
  const std::vector<float> all = floats(file, name);
  return weight(host, out, in, {all.begin() + index * out * in, all.begin() + (index + 1) * out * in});
}

}  // namespace lathe::testing
