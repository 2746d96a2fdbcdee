#pragma once

#include <vector>

#include "ops/mlp/mlp.h"

namespace lathe::reference {

// One row of mlp, unrounded.
std::vector<double> mlp_row(const Rows& x, int64_t row, const MlpWeights& w, float limit);

}  // namespace lathe::reference
