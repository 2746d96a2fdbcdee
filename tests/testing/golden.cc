#include "testing/golden.h"

#include <cmath>
#include <filesystem>
#include <limits>

namespace lathe::testing {

std::string fixture(const std::string& relative) {
  const std::filesystem::path source = LATHE_SOURCE_DIR;
  for (const auto& root : {source / "tests" / "data", source.parent_path() / "shared" / "fixtures"})
    if (std::filesystem::exists(root / relative)) return root / relative;
  return "";
}

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
