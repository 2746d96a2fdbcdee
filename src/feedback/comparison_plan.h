#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// A planned moment at which the primary metric is looked at; there are no others.
struct Look {
  int blocks;
  double level;  // error that this look may spend
};

enum class Better { kLower, kHigher };

// Everything about a comparison that is settled before its first run.
struct ComparisonPlan {
  std::vector<Look> looks = {{8, 0.0125}, {12, 0.0125}, {16, 0.0125}, {24, 0.0125}};
  double alpha = 0.05;
  double smallest_effect = 0.01;   // share of the value; inside it, arms are equivalent
  int calibration_blocks = 8;      // A against itself, before
  Better better = Better::kLower;  // of the values
  std::vector<double> weights;     // of the strata; empty: equal
  uint64_t seed = 1;               // draws which arm of a block runs first
};

// Looks must ascend, each level be within reach of its blocks, and all together within alpha.
Status check_plan(const ComparisonPlan& plan, int strata);

// The plan without its seed, and a digest that commits to both: stored before the first run, it shows later that
// nothing was changed. The seed is told when the experiment has ended.
nlohmann::json sealed_json(const ComparisonPlan& plan);
std::string plan_digest(const ComparisonPlan& plan);

// What the i-th confirmation under a goal (i from 1) may spend: alpha·6/(π²i²), together never more than alpha.
double confirmation_level(double alpha_goal, int i);
// The default looks at that level, or fewer, where the first ones can't reach it. Empty: out of reach with 24 blocks.
std::vector<Look> looks_within(double level);

}  // namespace lathe
