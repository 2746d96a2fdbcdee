#include "feedback/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace lathe {
namespace {

// Experiments a figure: LATHE_EXPERIMENTS=100000 in scripts/soak.
int experiments() {
  const char* wanted = std::getenv("LATHE_EXPERIMENTS");
  return wanted ? std::atoi(wanted) : 2000;
}

Comparison run(const World& world, ComparisonPlan plan, uint64_t seed) {
  SimulatedSource source(world, seed * 2 + 1);
  plan.seed = seed * 7919 + 3;
  return compare(source, plan).value();
}

struct Rates {
  double improved = 0, regressed = 0, decided = 0, covered = 0, mixed = 0;
};
Rates rates(const World& world, const ComparisonPlan& plan) {
  Rates r;
  const int n = experiments();
  for (int i = 0; i < n; ++i) {
    const Comparison c = run(world, plan, i);
    r.improved += c.verdict == Verdict::kImproved;
    r.regressed += c.verdict == Verdict::kRegressed;
    r.mixed += c.verdict == Verdict::kMixed;
    r.covered += c.effect.interval.contains(world.effect[0]);
  }
  for (double* x : {&r.improved, &r.regressed, &r.mixed, &r.covered}) *x /= n;
  r.decided = r.improved + r.regressed + r.mixed;
  return r;
}

const World kQuiet{};
const World kProcess{.process = 0.01};
const World kDrift{.process = 0.01, .drift = 0.05};
const World kSpikes{.process = 0.01, .spike_rate = 0.1, .spike = 0.5};

struct Named {
  const char* name;
  World world;
};
const Named kWorlds[] = {{"quiet", kQuiet}, {"process", kProcess}, {"drift", kDrift}, {"spikes", kSpikes}};

// No margin: any effect counts, so that nothing but the test itself holds a false decision back.
ComparisonPlan bare_plan() {
  ComparisonPlan plan;
  plan.smallest_effect = 0;
  return plan;
}

TEST(Calibration, AAgainstItselfIsSeldomDecidedAndNotNever) {
  for (const auto& [name, world] : kWorlds) {
    const Rates r = rates(world, bare_plan());
    EXPECT_LE(r.decided, 0.06) << name;
    EXPECT_GT(r.decided, 0) << name;
    RecordProperty(std::string("false_decisions_") + name, fmt::format("{:.4f}", r.decided));
    fmt::print("A/A decided, {}: {:.2f} %\n", name, 100 * r.decided);
  }
}

TEST(Calibration, StrataDoNotMultiplyFalseDecisions) {
  World four = kProcess;
  four.effect = {0, 0, 0, 0};
  const Rates r = rates(four, bare_plan());
  EXPECT_LE(r.decided, 0.06);
  fmt::print("A/A decided, four strata: {:.2f} %\n", 100 * r.decided);
}

TEST(Calibration, TwoPercentAreFound) {
  for (const auto& [name, world] : kWorlds) {
    World better = world;
    better.effect = {std::log(0.98)};
    const Rates r = rates(better, bare_plan());
    fmt::print("-2 % found, {}: {:.2f} %\n", name, 100 * r.improved);
    EXPECT_GE(r.improved, std::string(name) == "spikes" ? 0.4 : 0.95) << name;
  }
  World better = kProcess;
  better.effect = {std::log(0.98)};
  EXPECT_GE(rates(better, ComparisonPlan()).improved, 0.95) << "with the default margin";
}

TEST(Calibration, OnePercentIsNeverFoundTheWrongWayRound) {
  for (const auto& [name, world] : kWorlds) {
    World better = world;
    better.effect = {std::log(0.99)};
    const Rates r = rates(better, bare_plan());
    EXPECT_LT(r.regressed, 0.005) << name;
    fmt::print("-1 % called worse, {}: {:.2f} %\n", name, 100 * r.regressed);
  }
}

TEST(Calibration, IntervalsCover) {
  for (double effect : {0.0, -0.01, -0.02, 0.05})
    for (const auto& [name, world] : kWorlds) {
      World w = world;
      w.effect = {effect};
      const Rates r = rates(w, ComparisonPlan());
      EXPECT_GE(r.covered, 0.93) << name << " " << effect;
      fmt::print("interval covers {}, {}: {:.2f} %\n", effect, name, 100 * r.covered);
    }
}

// 200 candidates that change nothing. Each is screened with four blocks; what looks better than all before it is
// confirmed on fresh data, with the error that the i-th confirmation may spend.
TEST(Calibration, AGoalAcceptsNothingFromNullCandidates) {
  const int goals = std::max(200, experiments() / 10);
  int accepted = 0, confirmations = 0;
  for (int goal = 0; goal < goals; ++goal) {
    double best = 0;
    bool any = false;
    for (int candidate = 0, i = 1; candidate < 200; ++candidate) {
      RandomStream random(goal * 1000 + candidate);
      double screened = 0;
      for (int block = 0; block < 4; ++block) screened += kProcess.process * (random.normal() - random.normal()) / 4;
      if (screened >= best) continue;
      best = screened;
      ComparisonPlan plan = bare_plan();
      plan.looks = looks_within(confirmation_level(0.05, i++));
      if (plan.looks.empty()) break;
      ++confirmations;
      any |= run(kProcess, plan, random.next()).verdict == Verdict::kImproved;
    }
    accepted += any;
  }
  EXPECT_LE(accepted, 0.05 * goals);
  EXPECT_GT(confirmations, 3 * goals);
  fmt::print("goals that accepted a null candidate: {:.2f} % of {}, {:.1f} confirmations each\n",
             100.0 * accepted / goals, goals, 1.0 * confirmations / goals);
}

TEST(Comparison, EquivalentInsideTheMarginAndUndecidedBeside) {
  EXPECT_EQ(run(kQuiet, ComparisonPlan(), 1).verdict, Verdict::kEquivalent);
  World noisy{.process = 0.1};
  const Comparison c = run(noisy, ComparisonPlan(), 1);
  EXPECT_EQ(c.verdict, Verdict::kInconclusive);
  EXPECT_STREQ(verdict_words(c.verdict), "can't tell");
}

TEST(Comparison, DirectionFollowsWhatIsBetter) {
  World faster = kQuiet;
  faster.effect = {-0.1};
  ComparisonPlan plan;
  EXPECT_EQ(run(faster, plan, 1).verdict, Verdict::kImproved);
  plan.better = Better::kHigher;
  EXPECT_EQ(run(faster, plan, 1).verdict, Verdict::kRegressed);
}

TEST(Comparison, AWorseStratumMakesItMixed) {
  World w = kQuiet;
  w.effect = {-0.2, -0.2, 0.05};
  const Comparison c = run(w, ComparisonPlan(), 1);
  EXPECT_EQ(c.verdict, Verdict::kMixed);
  EXPECT_EQ(c.strata[2].verdict, Verdict::kRegressed);
  EXPECT_EQ(c.strata[0].verdict, Verdict::kImproved);
  w.effect = {0.2, 0.2, 0.05};
  EXPECT_EQ(run(w, ComparisonPlan(), 1).verdict, Verdict::kRegressed);
}

TEST(Comparison, BetterButMuchLessSteadyIsMixed) {
  World w{.process = 0.004, .effect = {-0.2}, .noise_of_b = 12};
  int mixed = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ComparisonPlan plan;
    plan.looks = {{24, 0.05}};
    mixed += run(w, plan, seed).verdict == Verdict::kMixed;
  }
  EXPECT_GE(mixed, 18);
}

TEST(Comparison, AClaimBelowWhatIsDetectableIsNotMade) {
  ComparisonPlan plan = bare_plan();
  for (uint64_t seed = 1; seed < 300; ++seed) {
    World w = kProcess;
    w.effect = {-0.005};
    const Comparison c = run(w, plan, seed);
    EXPECT_TRUE(c.verdict != Verdict::kImproved || std::fabs(c.effect.estimate) >= c.noise.detectable);
  }
}

TEST(Comparison, ALargeOrderEffectIsNoVerdict) {
  World w{.process = 0.001, .second_place = 0.2, .effect = {0.02}};
  int claimed = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Verdict v = run(w, ComparisonPlan(), seed).verdict;
    claimed += v == Verdict::kImproved || v == Verdict::kRegressed;
  }
  EXPECT_LE(claimed, 2);
}

TEST(Comparison, TheRecordedRunDecidesAlike) {
  World w{.process = 0.01, .effect = {-0.05, 0.0}};
  SimulatedSource source(w, 5);
  ComparisonPlan plan;
  plan.seed = 99;
  const Comparison live = compare(source, plan).value();
  const nlohmann::json written = to_json(live, plan, source.strata());
  const ComparisonRecord record = comparison_record(nlohmann::json::parse(written.dump())).value();
  RecordedSource recorded(record.strata, record.lives);
  EXPECT_EQ(to_json(compare(recorded, record.plan).value(), record.plan, recorded.strata()), written);

  nlohmann::json loosened = written;
  loosened["plan"]["smallest_effect"] = 0.5;
  EXPECT_FALSE(comparison_record(loosened).is_ok());
  nlohmann::json torn = written;
  torn["lives"][3].erase("values");
  EXPECT_FALSE(comparison_record(torn).is_ok());
  RecordedSource shorter(record.strata, {record.lives.begin(), record.lives.begin() + 4});
  EXPECT_FALSE(compare(shorter, record.plan).is_ok());
}

// Lives from a script.
class Scripted final : public MeasurementSource {
 public:
  std::function<Life(Arm, int)> script;
  const std::vector<std::string>& strata() const override { return strata_; }
  Result<Life> live(Arm arm) override { return script(arm, lives_++); }

 private:
  std::vector<std::string> strata_ = {"x"};
  int lives_ = 0;
};

TEST(Comparison, AWrongResultShowsNoTimes) {
  Scripted source;
  source.script = [](Arm arm, int n) {
    Life life{.arm = arm, .values = {arm == Arm::kA ? 2.0 : 1.0}};
    if (n == 25) life.trouble = Life::Trouble{Verdict::kIncorrect, "y[0] is 1, the reference has 2"};
    return life;
  };
  const Comparison c = compare(source, ComparisonPlan()).value();
  EXPECT_EQ(c.verdict, Verdict::kIncorrect);
  EXPECT_TRUE(to_json(c, ComparisonPlan(), source.strata())["effect"].is_null());
  EXPECT_TRUE(c.strata.empty());
}

TEST(Comparison, BlocksGoByTheEnvironmentAloneAndNotTooMany) {
  Scripted source;
  source.script = [](Arm arm, int n) {
    return Life{.arm = arm, .values = {1 + 0.001 * (n % 7)}, .disturbed = n == 20 || n == 31};
  };
  const Comparison some = compare(source, ComparisonPlan()).value();
  EXPECT_EQ(some.removed_blocks, 2);
  EXPECT_NE(some.verdict, Verdict::kInvalid);
  Scripted busy;
  busy.script = [](Arm arm, int n) { return Life{.arm = arm, .values = {1}, .disturbed = n % 3 == 0}; };
  EXPECT_EQ(compare(busy, ComparisonPlan()).value().verdict, Verdict::kInvalid);
}

TEST(ComparisonPlan, RefusesWhatCannotDecideOrSpendsTooMuch) {
  ComparisonPlan plan;
  EXPECT_TRUE(check_plan(plan, 1).is_ok());
  plan.looks = {{7, 0.0125}};
  EXPECT_FALSE(check_plan(plan, 1).is_ok());
  plan.looks = {{8, 0.03}, {12, 0.03}};
  EXPECT_FALSE(check_plan(plan, 1).is_ok());
  plan.looks = {{12, 0.01}, {8, 0.01}};
  EXPECT_FALSE(check_plan(plan, 1).is_ok());
  plan = {.weights = {1, 2}};
  EXPECT_FALSE(check_plan(plan, 3).is_ok());
}

TEST(ComparisonPlan, ConfirmationsNeverSpendMoreThanTheGoalHas) {
  double spent = 0;
  for (int i = 1; i < 100000; ++i) spent += confirmation_level(0.05, i);
  EXPECT_LE(spent, 0.05);
  EXPECT_GT(spent, 0.0499);
}

TEST(Verdict, NamesGoBothWays) {
  for (int i = 0; i < 8; ++i) {
    const Verdict v = static_cast<Verdict>(i);
    EXPECT_EQ(verdict_from(verdict_name(v)), v);
  }
  EXPECT_FALSE(verdict_from("can't tell").has_value());
}

}  // namespace
}  // namespace lathe
