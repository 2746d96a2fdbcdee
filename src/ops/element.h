#pragma once

#include "base/check.h"
#include "base/view.h"

// Single elements of views as doubles, whatever the dtype: for oracles, which are written to be read.

namespace lathe {

inline double load_value(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(data)[i]);
    case DType::kF16:
      return to_float(static_cast<const f16*>(data)[i]);
    case DType::kE4M3:
      return to_float(static_cast<const e4m3*>(data)[i]);
    case DType::kI8:
      return static_cast<const int8_t*>(data)[i];
    default:
      LATHE_CHECK(!"a dtype of activations or weights");
      return 0;
  }
}

inline double load(const Rows& r, int64_t row, int64_t i) {
  return load_value(r.data, r.dtype, row * r.stride + i) * (r.scale ? r.scale[row] : 1.0);
}

inline double load(const Weight& w, int64_t out, int64_t in) {
  const double stored = load_value(w.data, w.dtype, out * w.stride + in);
  return w.scale ? stored * w.scale[out / w.block_out * w.scale_stride + in / w.block_in] : stored;
}

inline double load(const Pool& p, int64_t item, int64_t i) {
  const double stored = load_value(p.data, p.dtype, item * p.item_size + i);
  return p.scale ? stored * p.scale[(item * p.item_size + i) / p.block] : stored;
}

// Rounds to f32 or bf16.
inline double rounded(double value, DType dtype) {
  const float f = static_cast<float>(value);
  return dtype == DType::kBF16 ? round_bf16(f) : f;
}

inline void store_value(void* data, DType dtype, int64_t i, double value) {
  LATHE_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  if (dtype == DType::kF32)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else
    static_cast<bf16*>(data)[i] = to_bf16(static_cast<float>(value));
}

inline void store(const Rows& r, int64_t row, int64_t i, double value) {
  store_value(r.data, r.dtype, row * r.stride + i, value);
}

inline void store(const Pool& p, int64_t item, int64_t i, double value) {
  store_value(p.data, p.dtype, item * p.item_size + i, value);
}

}  // namespace lathe
