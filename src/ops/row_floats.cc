#include "ops/row_floats.h"

#include <cstring>

#include "base/check.h"

namespace lathe {

void read_floats(const void* data, DType dtype, int64_t count, float* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, data, count * sizeof(float));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = to_float(static_cast<const bf16*>(data)[i]);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = to_float(static_cast<const f16*>(data)[i]);
      return;
    case DType::kE4M3:
      for (int64_t i = 0; i < count; ++i) out[i] = to_float(static_cast<const e4m3*>(data)[i]);
      return;
    case DType::kI8:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<const int8_t*>(data)[i];
      return;
    default:
      LATHE_CHECK(!"a dtype of activations or weights");
  }
}

void write_floats(void* data, DType dtype, int64_t count, const float* in) {
  if (dtype == DType::kF32) {
    std::memcpy(data, in, count * sizeof(float));
    return;
  }
  LATHE_CHECK(dtype == DType::kBF16);
  for (int64_t i = 0; i < count; ++i) static_cast<bf16*>(data)[i] = to_bf16(in[i]);
}

}  // namespace lathe
