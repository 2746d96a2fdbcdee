#include "feedback/sign_flip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "feedback/random_stream.h"

namespace lathe {
namespace {

std::vector<double> normals(int n, double centre, uint64_t seed) {
  RandomStream random(seed);
  std::vector<double> x(n);
  for (double& v : x) v = centre + random.normal();
  return x;
}

// All 2^n flips, one by one.
double p_by_brute_force(const std::vector<double>& d) {
  const int n = static_cast<int>(d.size());
  std::vector<double> rank(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      rank[i] += std::fabs(d[j]) < std::fabs(d[i]) ? 1 : std::fabs(d[j]) == std::fabs(d[i]) ? 0.5 : 0;
  const auto statistic = [&](int flips) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += rank[i] * (d[i] > 0 ? 1 : d[i] < 0 ? -1 : 0) * ((flips >> i) & 1 ? -1 : 1);
    for (int i = 0; i < n; ++i) sum += 0.5 * (d[i] > 0 ? 1 : d[i] < 0 ? -1 : 0) * ((flips >> i) & 1 ? -1 : 1);
    return std::fabs(sum);
  };
  int extreme = 0;
  for (int flips = 0; flips < 1 << n; ++flips) extreme += statistic(flips) >= statistic(0) - 1e-9;
  return static_cast<double>(extreme) / (1 << n);
}

TEST(SignFlip, CountsAllFlips) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<double> d = normals(3 + static_cast<int>(seed % 9), 0.4, seed);
    EXPECT_NEAR(sign_flip_p(d), p_by_brute_force(d), 1e-12);
  }
  const std::vector<double> ties = {1, 1, -1, 2, 2, 0, -3, 1};
  EXPECT_NEAR(sign_flip_p(ties), p_by_brute_force(ties), 1e-12);
}

TEST(SignFlip, EightAgreeingBlocksAreTheFewestForTheFirstLook) {
  const std::vector<double> d = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_DOUBLE_EQ(sign_flip_p(d), smallest_level(8));
  EXPECT_LT(smallest_level(8), 0.0125);
  EXPECT_GT(smallest_level(7), 0.0125);
  EXPECT_GT(sign_flip_interval(d, 0.0125).low, 0);
  EXPECT_TRUE(std::isinf(sign_flip_interval({1, 2, 3}, 0.0125).low));
}

TEST(SignFlip, TheIntervalIsWhatTheTestDoesNotReject) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<double> d = normals(12, 0.3, seed);
    const ConfidenceInterval interval = sign_flip_interval(d, 0.05);
    for (double shift = -3; shift < 3; shift += 0.0137) {
      std::vector<double> shifted = d;
      for (double& x : shifted) x -= shift;
      EXPECT_EQ(interval.contains(shift), sign_flip_p(shifted) > 0.05) << shift;
    }
  }
}

TEST(SignFlip, EstimateIsTheMedianOfPairAverages) {
  EXPECT_DOUBLE_EQ(hodges_lehmann({1, 2, 6}), 2.75);  // averages 1, 1.5, 2, 3.5, 4, 6
  std::vector<double> d = normals(21, 5, 3);
  d[0] = 1e9;
  EXPECT_NEAR(hodges_lehmann(d), 5, 1);
}

TEST(SignFlip, LimitsOfOneAndNone) {
  EXPECT_DOUBLE_EQ(sign_flip_p({}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({0, 0}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({2}), 1);
  EXPECT_DOUBLE_EQ(hodges_lehmann({}), 0);
}

TEST(RankSum, FindsAShiftAndNotNothing) {
  EXPECT_LT(rank_sum_p(normals(20, 0, 1), normals(20, 2, 2)), 1e-4);
  int found = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed)
    found += rank_sum_p(normals(12, 0, 2 * seed), normals(12, 0, 2 * seed + 1)) < 0.05;
  EXPECT_NEAR(found, 50, 25);
}

TEST(NormalQuantile, KnownPoints) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-5);
  EXPECT_NEAR(normal_quantile(0.2), -0.841621, 1e-5);
}

}  // namespace
}  // namespace lathe
