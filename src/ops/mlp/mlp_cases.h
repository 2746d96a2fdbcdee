#pragma once

#include "ops/linear/weight_cases.h"
#include "ops/mlp/mlp.h"

// Seeded feed-forward weights, for the workloads of mlp and moe.

namespace lathe {

MlpWeights make_mlp_weights(CaseBuilder& b, int64_t hidden, int64_t inner, int64_t out, WeightForm form, bool bias);
int64_t mlp_weight_bytes(int64_t hidden, int64_t inner, int64_t out, WeightForm form);

}  // namespace lathe
