#include "base/edit_distance.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lathe {

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& candidates) {
  // A checkpoint can have 76,000 tensors: only those of about the same length are compared.
  std::string best;
  size_t best_distance = static_cast<size_t>(-1);
  for (const std::string& candidate : candidates) {
    const size_t gap =
        candidate.size() > wanted.size() ? candidate.size() - wanted.size() : wanted.size() - candidate.size();
    if (gap >= best_distance || gap > 8) continue;
    if (const size_t d = edit_distance(wanted, candidate); d < best_distance) best_distance = d, best = candidate;
  }
  return best;
}

}  // namespace lathe
