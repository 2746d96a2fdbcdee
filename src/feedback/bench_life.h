#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "feedback/bench_plan.h"
#include "feedback/ceilings.h"

// One process life of `lathe bench ops`: each item timed cold, summarised to one number, with the ceilings measured
// beside it. Operators run cold: copies of a case's memory are used in turn, and what is missing to 4 times the last
// cache is read from elsewhere, so that a call never finds its data where an earlier one left it.

namespace lathe {

struct LifeTiming {
  int item = 0;  // in the plan
  double median_us = 0;
  int calls = 0;
  Roof roof;
  int64_t rotated_bytes = 0;
};

// Told before each item.
using LifeProgress = std::function<void(int item)>;
Result<std::vector<LifeTiming>> bench_life(const std::vector<BenchItem>& plan, int threads,
                                           const LifeProgress& progress);
// The same on a card: a round over the copies is recorded once and replayed, timed by the card's own clock. Roofs are the
// data sheet's, as kernels.md has them.
Result<std::vector<LifeTiming>> bench_card_life(const std::vector<BenchItem>& plan, const LifeProgress& progress);

nlohmann::json to_json(const LifeTiming& timing);
LifeTiming life_timing(const nlohmann::json& j);

// 4 times the last-level cache, or a quarter of the free memory where that is less.
int64_t rotation_bytes();

}  // namespace lathe
