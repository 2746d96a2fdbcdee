#include "feedback/comparison_plan.h"

#include <nlohmann/json.hpp>
#include <numbers>

#include "feedback/sha256.h"
#include "feedback/sign_flip.h"

namespace lathe {

Status check_plan(const ComparisonPlan& plan, int strata) {
  double spent = 0;
  int blocks = 0;
  if (plan.looks.empty()) return invalid("the plan has no look");
  for (const Look& look : plan.looks) {
    if (look.blocks <= blocks) return invalid("the plan's looks must ascend: {} after {} blocks", look.blocks, blocks);
    blocks = look.blocks;
    if (smallest_level(blocks) > look.level)
      return invalid("the plan looks at {} blocks with level {}: {} is the least that they can reach", blocks,
                     look.level, smallest_level(blocks));
    spent += look.level;
  }
  if (spent > plan.alpha + 1e-12) return invalid("the plan's looks spend {} of {}", spent, plan.alpha);
  if (plan.smallest_effect < 0)
    return invalid("the plan's smallest effect is {}; must not be negative", plan.smallest_effect);
  if (plan.calibration_blocks < 4)
    return invalid("the plan calibrates with {} blocks; 4 are the least", plan.calibration_blocks);
  if (strata < 1) return invalid("the source has nothing to measure");
  if (!plan.weights.empty() && static_cast<int>(plan.weights.size()) != strata)
    return invalid("the plan weighs {} strata, the source has {}", plan.weights.size(), strata);
  return Status::ok();
}

nlohmann::json sealed_json(const ComparisonPlan& plan) {
  nlohmann::json looks = nlohmann::json::array();
  for (const Look& look : plan.looks) looks.push_back({{"blocks", look.blocks}, {"level", look.level}});
  return {{"looks", looks},
          {"alpha", plan.alpha},
          {"smallest_effect", plan.smallest_effect},
          {"calibration_blocks", plan.calibration_blocks},
          {"better", plan.better == Better::kLower ? "lower" : "higher"},
          {"weights", plan.weights},
          {"seed_digest", sha256_hex(fmt::format("seed {}", plan.seed))}};
}

std::string plan_digest(const ComparisonPlan& plan) { return sha256_hex(sealed_json(plan).dump()); }

double confirmation_level(double alpha_goal, int i) {
  return alpha_goal * 6 / (std::numbers::pi * std::numbers::pi * i * i);
}

std::vector<Look> looks_within(double level) {
  std::vector<Look> looks;
  for (const Look& look : ComparisonPlan().looks)
    if (smallest_level(look.blocks) <= level / 4) looks.push_back({look.blocks, level / 4});
  return looks;
}

}  // namespace lathe
