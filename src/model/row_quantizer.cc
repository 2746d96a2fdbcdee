#include "model/row_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/row_floats.h"

namespace lathe {

float row_scale(const float* row, int64_t count, DType dtype) {
  const float top = dtype == DType::kI8 ? 127 : 448;
  int32_t magnitude =
      0;  // bits of non-negative floats are in the order of the floats, and a loop over integers is fast
  for (int64_t i = 0; i < count; ++i) magnitude = std::max(magnitude, std::bit_cast<int32_t>(row[i]) & 0x7fffffff);
  if (magnitude >= 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
  const float largest = std::bit_cast<float>(magnitude);
  const float scale = largest / top;
  return scale > 0 ? scale : 1 / top;  // also where the quotient underflows: such a row is a row of zeros
}

double quantize_row(const float* row, int64_t count, float scale, DType dtype, void* stored) {
  LATHE_CHECK(dtype == DType::kI8 || dtype == DType::kE4M3);
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float x = row[i] / scale;
    float back;
    if (dtype == DType::kI8) {
      const int8_t q = static_cast<int8_t>(std::lrintf(std::clamp(x, -127.0f, 127.0f)));
      static_cast<int8_t*>(stored)[i] = q;
      back = q;
    } else {
      const e4m3 q = to_e4m3(x);
      static_cast<e4m3*>(stored)[i] = q;
      back = to_float(q);
    }
    const double error = double{back} * scale - row[i];
    squares += error * error;
  }
  return squares;
}

void weight_row(const Weight& w, int64_t row, float* out) {
  read_floats(w.at(row), w.dtype, w.in, out);
  if (!w.scale) return;
  const float* scale = w.scale + row / w.block_out * w.scale_stride;
  for (int64_t i = 0; i < w.in; ++i) out[i] *= scale[i / w.block_in];
}

}  // namespace lathe
