#pragma once

#include <cstdint>

#include "base/view.h"

// Whole rows between memory and fp32 scratch, whatever the dtype (f32, bf16, f16, int8 and e4m3 with scales): for
// variants that compute in fp32. Fast on any machine.

namespace lathe {

void read_floats(const void* data, DType dtype, int64_t count, float* out);
void write_floats(void* data, DType dtype, int64_t count, const float* in);  // f32 or bf16

inline void read_row(const Rows& r, int64_t row, float* out) {
  read_floats(r.at(row), r.dtype, r.width, out);
  if (r.scale)
    for (int64_t i = 0; i < r.width; ++i) out[i] *= r.scale[row];
}
inline void write_row(const Rows& r, int64_t row, const float* in) { write_floats(r.at(row), r.dtype, r.width, in); }

}  // namespace lathe
