// The long form of tests/engine/never_lies_test.cc: 1,000 requests a run and model. Repeat it with other seeds:
//   lathe_test_soak --gtest_filter='*NeverLies*' --gtest_shuffle --gtest_random_seed=1 --gtest_repeat=20
#include <gtest/gtest.h>

#include "testing/golden.h"
#include "testing/never_lies.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::fixture;

struct Form {
  const char* model;
  int requests, vocab, context;
  bool strict;
};

class NeverLiesSoak : public ::testing::TestWithParam<Form> {};

TEST_P(NeverLiesSoak, AnswersAreThoseOfEachRequestAlone) {
  const Form form = GetParam();
  const testing::ScratchFolder folder;
  std::string model = testing::source_path("models/demo");
  if (form.model != std::string("demo")) {
    const std::string source = fixture(std::string("models/") + form.model), tokenizer = fixture("tokenizer/small");
    if (source.empty() || tokenizer.empty())
      GTEST_SKIP() << form.model << " or tokenizer/small is in neither tests/data nor the reference set";
    model = folder.path(form.model);
    testing::link_served(model, source, tokenizer);
  }
  testing::NeverLiesOptions o = testing::under_pressure(model, form.strict, form.context);
  o.traffic.vocab = form.vocab, o.requests = form.requests;
  o.traffic.seed = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  const auto report = testing::run_never_lies(o);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  testing::print(*report, o.traffic.seed);
  const int allowed = form.strict ? 0 : 1 + report->compared / 200;
  EXPECT_LE(report->differing, allowed);
  EXPECT_LE(report->unexplained, allowed);
  EXPECT_LE(report->off, allowed);
  EXPECT_EQ(report->leaks, 0);
  EXPECT_EQ(report->disorder, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, NeverLiesSoak,
                         ::testing::Values(Form{"tiny", 1000, 440, 260, true}, Form{"tiny", 1000, 440, 260, false},
                                           Form{"tiny_shared", 1000, 440, 260, true},
                                           Form{"tiny_shared", 1000, 440, 260, false},
                                           Form{"demo", 250, 2500, 400, true}, Form{"demo", 250, 2500, 400, false}),
                         [](const auto& p) {
                           return std::string(p.param.model) + (p.param.strict ? "Strict" : "Fast");
                         });

}  // namespace
}  // namespace lathe
