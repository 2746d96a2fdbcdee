#include "feedback/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "feedback/plants.h"

namespace lathe {
namespace {

struct Field {
  std::vector<float> values;
  FieldView view;

  explicit Field(int64_t rows, int64_t width, uint32_t seed = 1) : values(rows * width) {
    std::mt19937 random(seed);
    for (float& v : values) v = std::normal_distribution<float>()(random);
    view = {"y", Role::kOut, DType::kF32, values.data(), rows, width, width, nullptr, 0};
  }
  Field(const Field& from) : values(from.values), view(from.view) { view.data = values.data(); }
};

TEST(Judge, MeasuresRmsAgainstRms) {
  Field right(10, 10), wrong = right;
  for (float& v : wrong.values) v *= 1.001f;
  const Judgement j = judge(right.view, wrong.view, 1e-2);
  EXPECT_NEAR(j.error_ratio, 1e-3, 1e-5);
  EXPECT_EQ(j.fault, "");
  EXPECT_NE(judge(right.view, wrong.view, 1e-4).fault, "");
}

TEST(Judge, WantsNaNAndInfinityAtTheSamePlaces) {
  Field right(4, 4);
  right.values[3] = NAN, right.values[7] = INFINITY;
  Field same = right, elsewhere = right, other_sign = right;
  std::swap(elsewhere.values[3], elsewhere.values[4]);
  other_sign.values[7] = -INFINITY;
  EXPECT_EQ(judge(right.view, same.view, 0).fault, "");
  EXPECT_NE(judge(right.view, elsewhere.view, 1).fault, "");
  EXPECT_NE(judge(right.view, other_sign.view, 1).fault, "");
}

// 16 wrong elements among 100,000 move the RMS ratio by about 0.025 only, but each is off by twice its size.
TEST(Judge, FindsOneBadBlockInALargeField) {
  Field right(100, 1000), wrong = right;
  for (int i = 500; i < 516; ++i) wrong.values[i] = -wrong.values[i];
  const Judgement j = judge(right.view, wrong.view, 3e-2);
  EXPECT_LT(j.error_ratio, 3e-2);
  EXPECT_NE(j.fault.find("but y["), std::string::npos) << j.fault;
}

TEST(Judge, IntegersMustBeEqualButForOpenTies) {
  std::vector<int32_t> right = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, wrong = right;
  wrong[4] = 50;
  const FieldView a{"ids", Role::kOut, DType::kI32, right.data(), 1, 10, 10, nullptr, 0};
  FieldView b = a;
  b.data = wrong.data();
  EXPECT_EQ(judge(a, a, 0).fault, "");
  EXPECT_NE(judge(a, b, 1e9).fault.find("ids[0, 4] is 50, the reference has 5"), std::string::npos);
  EXPECT_EQ(judge(a, b, 0, 0.1).fault, "");
}

TEST(Judge, UsesScalesOfQuantisedRows) {
  std::vector<int8_t> stored = {100, 50, 100, 50};
  std::vector<float> scale = {1, 2}, other = {1, 4};
  const FieldView a{"y", Role::kOut, DType::kI8, stored.data(), 2, 2, 2, scale.data(), 0};
  FieldView b = a;
  b.scale = other.data();
  EXPECT_NEAR(judge(a, b, 10).error_ratio, std::sqrt(4.0 / 5), 1e-6);
}

TEST(Judge, RowsBetweenWhichThereIsSpaceAreComparedByTheirElements) {
  Field right(3, 4), wrong = right;
  right.view.width = wrong.view.width = 3;
  wrong.values[3] = 1e9f;  // behind the first row
  EXPECT_EQ(judge(right.view, wrong.view, 0).fault, "");
  EXPECT_EQ(first_different_row(right.view, wrong.view), -1);
  wrong.values[5] += 1;
  EXPECT_EQ(first_different_row(right.view, wrong.view), 1);
}

TEST(Plants, AreAllRejectedByATightTolerance) {
  const Field right(8, 32), other(8, 32, 2), input(8, 32, 3);
  const PlantReport report = try_plants({right.view}, {other.view}, {input.view}, 1e-5, 0);
  EXPECT_GE(report.planted, 9);
  EXPECT_TRUE(report.accepted.empty()) << report.accepted[0];
}

TEST(Plants, ShowThatALooseToleranceCannotJudge) {
  const Field right(8, 32), other(8, 32, 2);
  EXPECT_FALSE(try_plants({right.view}, {other.view}, {}, 2, 0).accepted.empty());
}

TEST(Plants, LeaveOutWhatNobodyCouldReject) {
  Field zeros(4, 4);
  std::fill(zeros.values.begin(), zeros.values.end(), 0.f);
  const PlantReport report = try_plants({zeros.view}, {zeros.view}, {}, 1e-5, 0);
  EXPECT_EQ(report.planted, 1);  // NaN
  EXPECT_TRUE(report.accepted.empty());
}

}  // namespace
}  // namespace lathe
