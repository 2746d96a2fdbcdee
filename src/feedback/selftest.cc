#include "feedback/selftest.h"

#include <fnmatch.h>

#include <algorithm>

#include "feedback/cheats.h"
#include "feedback/comparison.h"
#include "feedback/op_trial.h"
#include "ops/registry.h"

namespace lathe {

namespace {

// An operator with several rows, outputs and a state that is updated in place, small enough for the oracle.
constexpr const char* kOperator = "kda_decode";
constexpr int kLivesOfACheat = 4;     // in one of them it has to be caught
constexpr int kTries = 2;             // of what others on the machine may have disturbed
constexpr int kNullChanges = 2;       // comparisons of a build with itself
constexpr double kSlowdownFound = 2;  // of the planted 3

Result<std::pair<const AnyOp*, int>> subject() {
  for (const AnyOp& op : all_ops())
    if (op.name == std::string(kOperator))
      for (int i = 0; i < static_cast<int>(op.cases.size()); ++i)
        if (op.cases[i].bench && op.cases[i].name.starts_with("rows8")) return std::pair{&op, i};
  return internal("the self-test's operator {} has no case of 8 rows", kOperator);
}

using State = SelftestResult::State;

class Selftest {
 public:
  explicit Selftest(const SelftestOptions& options) : options_(options) {}

  Status prepare() {
    LATHE_ASSIGN(const auto found, subject());
    LATHE_ASSIGN(
        trial_,
        OpTrial::create(
            *found.first, found.second,
            {.threads = 1, .seconds = 0.02, .fewest_windows = 4, .rotation_bytes = int64_t{32} << 20, .secret = 99}));
    LATHE_ASSIGN(build_id_, candidate_build_id(options_.command.front()));
    return Status::ok();
  }

  Result<TrialResult> life(const std::string& name) {
    std::vector<std::string> command = options_.command;
    if (!name.empty()) command.insert(command.end(), {"--planted", name});
    return trial_->measure(command, "", 1, build_id_, true);
  }

  Result<SelftestResult> cheat(const PlantedCandidate& p) {
    SelftestResult r{p.name, "cheat", p.what};
    for (int i = 0; i < kLivesOfACheat && !r.passed(); ++i) {
      LATHE_ASSIGN(const TrialResult t, life(p.name));
      if (!t.trouble) continue;
      r.verdict = t.trouble->verdict, r.why = t.trouble->why;
      if (r.verdict == Verdict::kIncorrect || r.verdict == Verdict::kRefused) r.state = State::kPassed;
    }
    if (!r.passed() && r.why.empty()) r.why = "NOT CAUGHT: it would have been taken for a result";
    return r;
  }

  // A wrong result is never noise; a refusal may be, where others keep the machine busy.
  Result<SelftestResult> honest(const PlantedCandidate& p) {
    SelftestResult r{p.name, "honest", p.what};
    int passed = 0;
    for (int i = 0; i < kTries && passed == 0; ++i) {
      LATHE_ASSIGN(const TrialResult t, life(p.name));
      if (!t.trouble) {
        ++passed;
        continue;
      }
      r.verdict = t.trouble->verdict, r.why = t.trouble->why;
      if (r.verdict == Verdict::kIncorrect) return r;
    }
    if (passed > 0)
      r.state = State::kPassed, r.why.clear();
    else
      LATHE_RETURN_IF_ERROR(blame_machine(r));
    return r;
  }

  // Refused each time: the harness's fault, unless the plain candidate fares no better now.
  Status blame_machine(SelftestResult& r) {
    LATHE_ASSIGN(const TrialResult plain, life(""));
    if (plain.trouble && plain.trouble->verdict == Verdict::kRefused) r.state = State::kCantTell;
    return Status::ok();
  }

  // Lives of two candidates.
  class Source final : public MeasurementSource {
   public:
    Source(Selftest& test, std::string b) : test_(test), b_(std::move(b)) {}
    const std::vector<std::string>& strata() const override { return strata_; }
    Result<Life> live(Arm arm) override {
      LATHE_ASSIGN(const TrialResult t, test_.life(arm == Arm::kA ? "" : b_));
      return Life{.arm = arm, .values = {t.median_us}, .trouble = t.trouble};
    }

   private:
    Selftest& test_;
    std::string b_;
    std::vector<std::string> strata_ = {kOperator};
  };

  Result<Comparison> comparison(const std::string& b) {
    Source source(*this, b);
    ComparisonPlan plan;
    plan.calibration_blocks = 4;
    plan.looks = {{8, 0.0125}, {12, 0.0125}, {20, 0.0125}};
    plan.smallest_effect = 0.05;
    plan.seed = seed_++;
    return compare(source, plan);
  }
  static void tell(const Comparison& c, SelftestResult& r) {
    r.verdict = c.verdict;
    r.why = c.look > 0          ? fmt::format("{:+.0f} %", percent(c.effect.estimate))
            : c.reasons.empty() ? ""
                                : c.reasons.front();
  }

  Result<SelftestResult> slowdown(const PlantedCandidate& p) {
    SelftestResult r{p.name, "slowdown", p.what};
    for (int i = 0; i < kTries && !r.passed(); ++i) {
      LATHE_ASSIGN(const Comparison c, comparison(p.name));
      tell(c, r);
      const bool undecided =
          c.verdict == Verdict::kInconclusive || c.verdict == Verdict::kInvalid || c.verdict == Verdict::kRefused;
      if (c.verdict == Verdict::kRegressed && c.effect.estimate > std::log(kSlowdownFound))
        r.state = State::kPassed;
      else
        r.state = undecided ? State::kCantTell : State::kFailed;
    }
    return r;
  }

  // At the level of one look a true null is decided now and then; twice in the same direction is no chance.
  Result<SelftestResult> null_change(const std::string& name) {
    SelftestResult r{name, "null change", "a build against itself"};
    Verdict before = Verdict::kEquivalent;
    for (int i = 0; i < kTries; ++i) {
      LATHE_ASSIGN(const Comparison c, comparison(""));
      tell(c, r);
      if (c.verdict != Verdict::kImproved && c.verdict != Verdict::kRegressed) {
        r.state = c.verdict == Verdict::kInvalid || c.verdict == Verdict::kRefused ? State::kCantTell : State::kPassed;
        return r;
      }
      if (i > 0 && c.verdict != before) break;
      before = c.verdict;
    }
    r.state = r.verdict == before ? State::kFailed : State::kCantTell;
    return r;
  }

 private:
  const SelftestOptions& options_;
  std::unique_ptr<OpTrial> trial_;
  std::string build_id_;
  uint64_t seed_ = 1;
};

}  // namespace

Result<std::vector<SelftestResult>> selftest(const SelftestOptions& options, const SelftestProgress& progress) {
  Selftest test(options);
  LATHE_RETURN_IF_ERROR(test.prepare());
  struct Step {
    std::string name;
    std::function<Result<SelftestResult>()> run;
  };
  std::vector<Step> steps;
  for (const PlantedCandidate& p : planted_candidates())
    steps.push_back({p.name, [&test, &p] {
                       return p.kind == Planted::kCheat    ? test.cheat(p)
                              : p.kind == Planted::kHonest ? test.honest(p)
                                                           : test.slowdown(p);
                     }});
  for (int i = 0; i < kNullChanges; ++i)
    steps.push_back({fmt::format("null_change_{}", i + 1),
                     [&test, i] { return test.null_change(fmt::format("null_change_{}", i + 1)); }});
  std::erase_if(steps, [&](const Step& s) { return fnmatch(options.only.c_str(), s.name.c_str(), 0) != 0; });
  if (steps.empty()) return invalid("selftest: nothing is planted under the name '{}'", options.only);
  std::vector<SelftestResult> results;
  for (const Step& step : steps) {
    if (progress) progress(static_cast<int>(results.size()), static_cast<int>(steps.size()), step.name);
    Result<SelftestResult> r = step.run();
    if (!r.is_ok()) return r.status().within("selftest: " + step.name);
    results.push_back(std::move(r).value());
  }
  return results;
}

}  // namespace lathe
