#include "feedback/sign_flip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/check.h"

namespace lathe {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Ranks from 1, ties sharing their mean, all doubled: whole numbers.
std::vector<int> doubled_ranks(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return values[a] < values[b]; });
  std::vector<int> ranks(values.size());
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    for (end = begin; end < order.size() && values[order[end]] == values[order[begin]];) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<int>(begin + 1 + end);
  }
  return ranks;
}

// share[s]: of all choices of signs, those in which the ranks with a plus sum to s.
std::vector<double> plus_shares(const std::vector<int>& ranks) {
  std::vector<double> share(std::accumulate(ranks.begin(), ranks.end(), size_t{1}));
  share[0] = 1;
  for (int rank : ranks)
    for (size_t s = share.size(); s-- > 0;)
      share[s] = 0.5 * (share[s] + (s >= static_cast<size_t>(rank) ? share[s - rank] : 0));
  return share;
}

std::vector<double> pair_averages(const std::vector<double>& x) {
  std::vector<double> averages;
  averages.reserve(x.size() * (x.size() + 1) / 2);
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = i; j < x.size(); ++j) averages.push_back((x[i] + x[j]) / 2);
  return averages;
}

// How many pair averages at either end lie outside the interval.
int64_t trimmed(int n, double level) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 1);
  const std::vector<double> share = plus_shares(ranks);
  double tail = 0;
  for (size_t s = 0; s < share.size(); ++s)
    if ((tail += share[s]) > level / 2) return static_cast<int64_t>(s);
  return static_cast<int64_t>(share.size());
}

}  // namespace

double sign_flip_p(const std::vector<double>& differences) {
  std::vector<double> size;
  for (double d : differences) size.push_back(std::fabs(d));
  std::vector<int> ranks = doubled_ranks(size);
  int64_t plus = 0, all = 0;
  std::vector<int> flippable;
  for (size_t i = 0; i < differences.size(); ++i) {
    if (differences[i] == 0) continue;
    flippable.push_back(ranks[i]);
    all += ranks[i];
    if (differences[i] > 0) plus += ranks[i];
  }
  const std::vector<double> share = plus_shares(flippable);
  double tail = 0;
  for (int64_t s = 0; s <= std::min(plus, all - plus); ++s) tail += share[s];
  return std::min(1.0, 2 * tail);
}

ConfidenceInterval sign_flip_interval(const std::vector<double>& differences, double level) {
  std::vector<double> averages = pair_averages(differences);
  const int64_t count = static_cast<int64_t>(averages.size());
  const int64_t cut = trimmed(static_cast<int>(differences.size()), level);
  if (cut == 0 || count == 0) return {-kInfinity, kInfinity};
  std::sort(averages.begin(), averages.end());
  // Shifts between the two are kept; where half of the averages are cut from either side, their median alone is.
  const int64_t low = std::min(cut - 1, (count - 1) / 2);
  return {averages[low], averages[count - 1 - low]};
}

double hodges_lehmann(const std::vector<double>& differences) {
  return differences.empty() ? 0 : median(pair_averages(differences));
}

double smallest_level(int differences) { return std::ldexp(2.0, -differences); }

double rank_sum_p(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size()), all = n + m;
  if (n < 3 || m < 3) return 1;
  std::vector<double> both = a;
  both.insert(both.end(), b.begin(), b.end());
  const std::vector<int> ranks = doubled_ranks(both);
  const double mean = (all + 1) / 2;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double rank = ranks[i] / 2.0;
    if (i < a.size()) sum += rank;
    squares += (rank - mean) * (rank - mean);
  }
  const double variance = n * m / (all * (all - 1)) * squares;
  return variance == 0 ? 1 : std::erfc(std::fabs(sum - n * mean) / std::sqrt(2 * variance));
}

double normal_quantile(double probability) {
  LATHE_CHECK(probability > 0 && probability < 1);
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < probability ? low : high) = middle;
  }
  return low;
}

double median(std::vector<double> values) {
  LATHE_CHECK(!values.empty());
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

}  // namespace lathe
