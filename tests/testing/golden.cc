#include "testing/golden.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/bf16.h"

namespace lathe::testing {

namespace {

TensorSpan find(const Safetensors& file, const std::string& name) {
  Result<TensorSpan> span = file.find(name);
  if (!span.is_ok()) {
    std::fprintf(stderr, "%s\n", span.status().message().c_str());
    std::abort();
  }
  return *span;
}

double value(const TensorSpan& span, int64_t i) {
  switch (span.dtype) {
    case DType::kF64:
      return static_cast<const double*>(span.data)[i];
    case DType::kF32:
      return static_cast<const float*>(span.data)[i];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(span.data)[i]);
    case DType::kF16:
      return to_float(static_cast<const f16*>(span.data)[i]);
    case DType::kE4M3:
      return to_float(static_cast<const e4m3*>(span.data)[i]);
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(span.data)[i]);
    case DType::kI32:
      return static_cast<const int32_t*>(span.data)[i];
    case DType::kI8:
      return static_cast<const int8_t*>(span.data)[i];
    case DType::kU8:
    case DType::kBool:
      return static_cast<const uint8_t*>(span.data)[i];
  }
  return 0;
}

template <class T>
std::vector<T> values(const TensorSpan& span) {
  std::vector<T> out(span.count());
  for (int64_t i = 0; i < span.count(); ++i) out[i] = static_cast<T>(value(span, i));
  return out;
}

}  // namespace

std::string source_file(const std::string& relative) { return std::string(LATHE_SOURCE_DIR) + "/" + relative; }

std::string fixture(const std::string& relative) {
  const std::filesystem::path source = LATHE_SOURCE_DIR;
  for (const auto& root : {source / "tests" / "data", source.parent_path() / "shared" / "fixtures"})
    if (std::filesystem::exists(root / relative)) return root / relative;
  return "";
}

std::string source_path(const std::string& relative) { return std::filesystem::path(LATHE_SOURCE_DIR) / relative; }

std::vector<float> floats(const Safetensors& file, const std::string& name) { return values<float>(find(file, name)); }
std::vector<int32_t> ints(const Safetensors& file, const std::string& name) {
  return values<int32_t>(find(file, name));
}
std::vector<int64_t> shape(const Safetensors& file, const std::string& name) { return find(file, name).shape; }

double rms_ratio(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double error = 0, reference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(a[i])) continue;
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    reference += double{b[i]} * b[i];
  }
  return error == 0 ? 0 : std::sqrt(error / reference);
}

}  // namespace lathe::testing
