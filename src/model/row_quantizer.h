#pragma once

#include <cstdint>

#include "base/view.h"

// Rows of a weight in W8A8 form: value = stored · scale, one scale a row.
namespace lathe {

// scale = max|row|/top with top = 127 (kI8) or 448 (kE4M3); a row of zeros gets 1/top, so that a scale is never 0.
// A row with a NaN or an infinity gets the scale NaN.
float row_scale(const float* row, int64_t count, DType dtype);

// stored = round to nearest even of row/scale, where `scale` is the row's own. Returns the sum of squared errors.
double quantize_row(const float* row, int64_t count, float scale, DType dtype, void* stored);

// A row of any weight as f32 numbers, its scales applied.
void weight_row(const Weight& w, int64_t row, float* out);

}  // namespace lathe
