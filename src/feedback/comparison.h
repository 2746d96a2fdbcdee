#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "feedback/comparison_plan.h"
#include "feedback/measurement_source.h"
#include "feedback/sign_flip.h"

// Is B better than A? First A against itself, for the noise floor; then blocks of one fresh process each, the order
// drawn by coin; a decision at the planned looks only. The effect is the logarithm of B's value over A's, paired by
// block: negative means that B's is lower.

namespace lathe {

struct Effect {
  double estimate = 0;
  ConfidenceInterval interval{0, 0};
  double p = 1;  // of strata: adjusted for their number (Holm)
};

// What A against itself shows; logarithms, so nearly shares.
struct NoiseFloor {
  int blocks = 0;
  double deviation = 0;   // standard deviation of block differences, estimated so that spikes don't rule it
  double drift = 0;       // over all lives of the calibration
  double order = 0;       // what the second life of a block takes longer
  double detectable = 0;  // smallest effect found in 80 of 100 experiments of this plan: less can't be claimed
};

struct StratumResult {
  std::string name;
  Verdict verdict = Verdict::kInconclusive;
  Effect effect;
  double detectable = 0;
  double median_a = 0, median_b = 0;  // in the source's unit
};

struct Comparison {
  Verdict verdict = Verdict::kInconclusive;
  Effect effect;  // of the strata by their weights
  int look = 0;   // from 1; 0: ended before the first
  int blocks = 0, removed_blocks = 0;
  double error_spent = 0;
  std::vector<StratumResult> strata;
  std::vector<std::string> reasons;
  NoiseFloor noise;
  std::vector<Life> lives;  // all, in the order in which they ran; calibration first
};

// Told before each life: how many are done, of how many at most, and what for. Never a value.
using ComparisonProgress = std::function<void(int done, int most, const std::string& what)>;

Result<Comparison> compare(MeasurementSource& source, const ComparisonPlan& plan,
                           const ComparisonProgress& progress = {});

// The whole: from it a RecordedSource comes to the same decision again.
nlohmann::json to_json(const Comparison& comparison, const ComparisonPlan& plan,
                       const std::vector<std::string>& strata_names);
struct ComparisonRecord {
  std::vector<std::string> strata;
  std::vector<Life> lives;
  ComparisonPlan plan;
};
Result<ComparisonRecord> comparison_record(const nlohmann::json& j);

// exp(log) - 1, in percent.
double percent(double log_ratio);

}  // namespace lathe
