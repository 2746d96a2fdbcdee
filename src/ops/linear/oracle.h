#pragma once

#include <vector>

#include "base/view.h"

// The steps of a matrix product in doubles, for the oracles of linear, mlp, moe and lm_head.

namespace lathe::reference {

// Row `row` of x as w meets it: its values, or, for a W8A8 weight, the values of the quantised row.
std::vector<double> met_by(const Weight& w, const Rows& x, int64_t row);
// The same for a row of fp32 values in hand.
std::vector<double> met_by(const Weight& w, const std::vector<float>& x);

// x·wᵀ + bias, unrounded.
std::vector<double> product(const std::vector<double>& x, const Weight& w, Array<const float> bias);

}  // namespace lathe::reference
