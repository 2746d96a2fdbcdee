#include "feedback/counting.h"

#include <gtest/gtest.h>

namespace lathe {
namespace {

TEST(Counting, NoFailureIsABoundNotAProof) {
  EXPECT_DOUBLE_EQ(failure_rate_bound(300), 0.01);
  EXPECT_DOUBLE_EQ(failure_rate_bound(0), 1);
}

TEST(Counting, TailsNeedRequests) {
  EXPECT_DOUBLE_EQ(highest_quantile(2000), 0.99);
  EXPECT_DOUBLE_EQ(highest_quantile(1999), 0.95);
  EXPECT_DOUBLE_EQ(highest_quantile(10), 0.5);
}

TEST(Counting, ASequenceDecidesBetweenTwoSealedRates) {
  EXPECT_EQ(sequential_rate(10, 0, 0.01, 0.2), RateVerdict::kGoesOn);
  EXPECT_EQ(sequential_rate(20, 0, 0.01, 0.2), RateVerdict::kAtMostLow);
  EXPECT_EQ(sequential_rate(20, 4, 0.01, 0.2), RateVerdict::kAtLeastHigh);
}

TEST(Counting, ADifferenceInsideAnArmIsAFindingItself) {
  EXPECT_TRUE(compare_counts({5, 5}, {5, 5}).equal);
  EXPECT_FALSE(compare_counts({5, 5}, {6, 6}).equal);
  EXPECT_TRUE(compare_counts({5, 5}, {6, 6}).steady);
  EXPECT_FALSE(compare_counts({5, 6}, {6, 6}).steady);
}

}  // namespace
}  // namespace lathe
