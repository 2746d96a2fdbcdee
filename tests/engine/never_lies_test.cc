// Under any load a request's answer is what it gives alone on a cold server; and a fault in folding, forking, the
// cursor or the host tier doesn't go unnoticed.
#include "testing/never_lies.h"

#include <gtest/gtest.h>

#include <random>

#include "testing/planted_faults.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::NeverLiesOptions;
using testing::NeverLiesReport;
using testing::PlantedFault;
using testing::ServingModel;

class NeverLies : public ::testing::Test {
 protected:
  static const ServingModel& model() {
    static const ServingModel m;
    return m;
  }

  static NeverLiesOptions options(bool strict) {
    NeverLiesOptions o = testing::under_pressure(model().path(), strict, 260);
    o.traffic.vocab = 256, o.traffic.image_token = ServingModel::kImage, o.traffic.pictures = true;
    return o;
  }

  static NeverLiesReport run(NeverLiesOptions o, uint64_t seed, int requests) {
    o.traffic.seed = seed, o.requests = requests;
    const auto report = testing::run_never_lies(o);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    if (!report.is_ok()) return {};
    testing::print(*report, seed);
    return *report;
  }

  static uint64_t fresh_seed() { return std::random_device()(); }
};

TEST_F(NeverLies, StrictGivesEqualIds) {
  const NeverLiesReport r = run(options(true), fresh_seed(), 500);
  EXPECT_EQ(r.differing, 0);
  EXPECT_EQ(r.leaks, 0);
  EXPECT_EQ(r.disorder, 0);
  EXPECT_GT(r.compared, 400);
  EXPECT_GT(r.preempted, 0u);
  EXPECT_GT(r.hit_tokens, 0u);
  EXPECT_GT(r.drafts, 0u);
}

TEST_F(NeverLies, FastDiffersInNearTiesOnly) {
  const NeverLiesReport r = run(options(false), fresh_seed(), 500);
  // 1 in 200, and room for one more among so few.
  EXPECT_LE(r.differing, 1 + r.compared / 200);
  EXPECT_LE(r.unexplained, 1 + r.compared / 200);
  EXPECT_LE(r.off, 1 + r.compared / 200);
  EXPECT_EQ(r.leaks, 0);
  EXPECT_EQ(r.disorder, 0);
  EXPECT_GT(r.preempted, 0u);
  EXPECT_GT(r.hit_tokens, 0u);
  EXPECT_GT(r.drafts, 0u);
}

// Each fault must show in a run much shorter than the ones above.
struct Fault {
  const char* name;
  bool strict;
  PlantedFault planted;
};

class NeverLiesFault : public NeverLies, public ::testing::WithParamInterface<Fault> {};

TEST_P(NeverLiesFault, IsCaught) {
  NeverLiesOptions o = options(GetParam().strict);
  o.served.parts = testing::parts_with(GetParam().planted);
  const NeverLiesReport r = run(o, 17, 120);
  EXPECT_GT(std::max(r.differing, r.off), 2 + r.compared / 50);
}

INSTANTIATE_TEST_SUITE_P(NeverLies, NeverLiesFault,
                         ::testing::Values(Fault{"SkippedFold", false, PlantedFault::kSkippedFold},
                                           Fault{"DroppedTail", true, PlantedFault::kDroppedTail},
                                           Fault{"CursorPerLayer", false, PlantedFault::kCursorPerLayer},
                                           Fault{"ReusedUnderLoad", true, PlantedFault::kReusedUnderLoad}),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace lathe
