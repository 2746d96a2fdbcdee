#include "feedback/intervals.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe {
namespace {

constexpr int kDay = 96;  // moments of a bitmap: small, so that touching, equal and nested intervals are common

using Bitmap = std::vector<bool>;

std::vector<Interval> random_intervals(std::mt19937& random) {
  std::vector<Interval> intervals(random() % 9);
  for (Interval& i : intervals) i.begin = random() % kDay, i.end = random() % kDay;  // some empty, some inverted
  return intervals;
}

Bitmap bitmap(const std::vector<Interval>& intervals) {
  Bitmap bits(kDay);
  for (const Interval& i : intervals)
    for (int64_t t = i.begin; t < i.end; ++t) bits[t] = true;
  return bits;
}

Bitmap combined(const Bitmap& a, const Bitmap& b, bool (*f)(bool, bool)) {
  Bitmap bits(kDay);
  for (int t = 0; t < kDay; ++t) bits[t] = f(a[t], b[t]);
  return bits;
}

// The set as a bitmap, after checking that it is sorted and that nothing touches.
Bitmap bitmap(const IntervalSet& set) {
  int64_t last = -1;
  for (const Interval& i : set.intervals()) {
    EXPECT_GT(i.begin, last);
    EXPECT_GT(i.end, i.begin);
    last = i.end;
  }
  return bitmap(set.intervals());
}

int64_t count(const Bitmap& bits) { return std::count(bits.begin(), bits.end(), true); }

TEST(Intervals, AgreeWithABitmap) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const auto some = random_intervals(random), others = random_intervals(random);
    const IntervalSet a(some), b(others);
    const Bitmap in_a = bitmap(some), in_b = bitmap(others);
    ASSERT_EQ(bitmap(a), in_a);
    ASSERT_EQ(a.total(), count(in_a));
    ASSERT_EQ(bitmap(a.united(b)), combined(in_a, in_b, [](bool x, bool y) { return x || y; }));
    const Bitmap both = combined(in_a, in_b, [](bool x, bool y) { return x && y; });
    ASSERT_EQ(bitmap(a.intersected(b)), both);
    ASSERT_EQ(a.overlap(b), count(both));
    ASSERT_EQ(bitmap(a.without(b)), combined(in_a, in_b, [](bool x, bool y) { return x && !y; }));
    ASSERT_EQ(bitmap(a.gaps({0, kDay})), combined(in_a, in_a, [](bool x, bool) { return !x; }));
    for (int t = 0; t < kDay; ++t) ASSERT_EQ(a.contains(t), in_a[t]);
  }
}

TEST(Intervals, CategoriesAddUpToTheWindow) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const auto a = random_intervals(random), b = random_intervals(random);
    const Interval window{static_cast<int64_t>(random() % 20), static_cast<int64_t>(60 + random() % 36)};
    const auto shares = overlap_by_category({{"a", IntervalSet(a)}, {"b", IntervalSet(b)}}, window);
    const Bitmap in_a = bitmap(a), in_b = bitmap(b);
    std::map<std::string, int64_t> expected;
    for (int64_t t = window.begin; t < window.end; ++t)
      ++expected[in_a[t] ? (in_b[t] ? "a + b" : "a") : (in_b[t] ? "b" : "idle")];
    ASSERT_EQ(shares, expected);
  }
}

TEST(Intervals, TouchingOnesBecomeOne) {
  EXPECT_EQ(IntervalSet({{5, 7}, {1, 5}}).intervals(), (std::vector<Interval>{{1, 7}}));
  EXPECT_EQ(IntervalSet({{3, 3}, {9, 2}}).total(), 0);
  EXPECT_EQ(IntervalSet().hull(), (Interval{0, 0}));
}

}  // namespace
}  // namespace lathe
