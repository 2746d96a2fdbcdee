#include "feedback/relations.h"

#include <gtest/gtest.h>

#include "testing/golden.h"
#include "testing/planted_faults.h"

namespace lathe {
namespace {

TEST(Relations, LengthsThatFailHaveAPattern) {
  EXPECT_EQ(pattern_of({}, 64), "none up to 64");
  EXPECT_EQ(pattern_of({17, 18, 19, 20}, 20), "from 17 tokens on");
  EXPECT_EQ(pattern_of({17, 33, 49}, 60), "period 16: at 17 tokens and every 16 on");
  EXPECT_EQ(pattern_of({5, 7, 30}, 60), "3 of 60 lengths, the first 5");
}

class RelationsOfTiny : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = testing::fixture("models/tiny");
    if (model_.empty()) GTEST_SKIP() << "models/tiny is in neither tests/data nor the reference set";
    runner_ = PathRunner::create(model_, "f32", kTokens).value();
    uint32_t state = 7;
    for (int32_t& id : tokens_) id = static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % 512;
  }
  RelationResult check(Path path) {
    const std::vector<Path> paths = relation_paths(kTokens, 2);
    auto r = check_relation(*runner_, path, paths, tokens_, 1e-5);
    EXPECT_TRUE(r.is_ok()) << r.status().message();
    return r.is_ok() ? *r : RelationResult{};
  }

  static constexpr int kTokens = 72;
  std::string model_;
  std::unique_ptr<PathRunner> runner_;
  std::vector<int32_t> tokens_ = std::vector<int32_t>(kTokens);
};

TEST_F(RelationsOfTiny, AllHoldAndCopiesWithoutMemoryFail) {
  const auto report = check_relations({.model = model_, .dtypes = {"f32", "bf16"}, .tokens = 128}, {});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(report->failures(), 0) << to_text(*report);
  EXPECT_FALSE(report->blind);
}

TEST_F(RelationsOfTiny, ALostStateIsFoundWhereItIsReadFirst) {
  Path path{.name = "chunks of 16, the state lost", .chunk = 16, .forgets = SegmentKind::kState};
  const RelationResult r = check(path);
  EXPECT_FALSE(r.as_expected);
  EXPECT_EQ(r.smallest_length, 17);
  EXPECT_EQ(r.lengths.rfind("from 17", 0), 0u) << r.lengths;
  EXPECT_EQ(r.address.rfind("pass 1, position 16, layer 0 (KDA), operator kda_prefill", 0), 0u) << r.address;
  path.must_fail = true;
  EXPECT_TRUE(check(path).as_expected);
}

TEST_F(RelationsOfTiny, ACursorThatMovesByLayerIsNoticed) {
  Path path{.name = "replay", .decode_from = 20, .replay = true};
  EXPECT_TRUE(check(path).as_expected);
  const ServiceParts faulty = testing::parts_with(testing::PlantedFault::kCursorPerLayer);
  runner_ = PathRunner::create(model_, "f32", kTokens, faulty.executor).value();
  EXPECT_EQ(check(path).smallest_length, 21);
}

TEST_F(RelationsOfTiny, ALowerPrecisionIsNoOtherOrderOfSums) {
  Path path{.name = "cut by segments in tf32", .cut = "cp=2", .variants = {"kda_scan=increment"}};
  EXPECT_TRUE(check(path).as_expected);
}

}  // namespace
}  // namespace lathe
