#pragma once

#include "ops/linear/panel.h"

// The steps around a panel's product on AVX2: rows in, values out. See panel.h for what each does. Prepared rows are
// fp32, of each 16 k those at even places first, or int16 of int8 steps, in the order of k.

namespace lathe::avx2 {

void prepare_row(const Rows& x, int64_t from_row, const PreparedRows& to, int64_t to_row, float* row_scratch);
void store_values(const float* values, int64_t rows, const float* bias, const Rows& y, int64_t first_row,
                  int64_t first_out, int outs, bool round_bf16);
void swiglu_values(float* gate, const float* up, int64_t rows, int outs, const float* gate_bias, const float* up_bias,
                   float limit);
void put_values(const float* values, int64_t rows, int outs, bool round_bf16, const PreparedRows& to, int64_t first_row,
                int64_t first_out);
void add_weighted_values(const float* values, int64_t rows, int outs, const float* bias, const float* weight,
                         const int32_t* index, float* sum, int64_t sum_stride);

}  // namespace lathe::avx2
