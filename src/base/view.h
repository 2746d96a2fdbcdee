#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/dtype.h"

// Views: what an operator's arguments are made of. None owns memory; all pointers are device addresses
// unless a field says otherwise. They describe themselves (extent and type), so that one visitor over an
// operator's Args can translate, copy, poison or compare them.

namespace lathe {

// `count` values in a row.
template <class T>
struct Array {
  T* data = nullptr;
  int64_t count = 0;

  LATHE_HOST_DEVICE T& operator[](int64_t i) const { return data[i]; }
  LATHE_HOST_DEVICE bool empty() const { return count == 0; }
  LATHE_HOST_DEVICE operator Array<const T>() const { return {data, count}; }
};

// Activation rows: [rows, width], `stride` elements from row to row. int8 and e4m3 rows carry one scale a row:
// value = stored · scale[row].
struct Rows {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0, stride = 0;
  float* scale = nullptr;  // [rows], only for kI8 and kE4M3

  LATHE_HOST_DEVICE bool empty() const { return rows == 0; }
  float* f32(int64_t row = 0) const { return static_cast<float*>(data) + row * stride; }
  bf16* b16(int64_t row = 0) const { return static_cast<bf16*>(data) + row * stride; }
  int8_t* i8(int64_t row = 0) const { return static_cast<int8_t*>(data) + row * stride; }
  void* at(int64_t row) const { return static_cast<char*>(data) + row * stride * dtype_bytes(dtype); }

  // Columns [begin, begin + count) of the same rows.
  Rows columns(int64_t begin, int64_t count) const {
    Rows r = *this;
    r.data = static_cast<char*>(data) + begin * dtype_bytes(dtype);
    r.width = count;
    return r;
  }
  // Rows [begin, begin + count).
  Rows slice(int64_t begin, int64_t count) const {
    Rows r = *this;
    r.data = at(begin);
    r.rows = count;
    if (scale) r.scale = scale + begin;
    return r;
  }
};

// A matrix of a checkpoint, [out, in], in-dimension fastest. Scales, where the dtype needs them, cover blocks of
// block_out x block_in: the released FP8 layout has 128 x 128, a W8A8 weight 1 x in. value = stored · scale[block].
struct Weight {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t out = 0, in = 0, stride = 0;
  const float* scale = nullptr;  // [ceil(out / block_out), scale_stride]
  int block_out = 0, block_in = 0;
  int64_t scale_stride = 0;

  LATHE_HOST_DEVICE bool empty() const { return out == 0; }
  const void* at(int64_t row) const { return static_cast<const char*>(data) + row * stride * dtype_bytes(dtype); }
  // One scale an output row and 8-bit values: activations are quantised by row, too (W8A8).
  LATHE_HOST_DEVICE bool is_w8a8() const { return scale && block_out == 1; }
  // Rows [begin, begin + count) of the output; begin must be a multiple of block_out.
  Weight slice(int64_t begin, int64_t count) const {
    Weight w = *this;
    w.data = at(begin);
    w.out = count;
    if (scale) w.scale = scale + (begin / block_out) * scale_stride;
    return w;
  }
};

// Storage of equal items: state slots or cache pages, [items, item_size]. int8 and e4m3 items carry a scale for every
// `block` values.
struct Pool {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t items = 0, item_size = 0;
  float* scale = nullptr;  // [items, item_size / block]
  int block = 0;

  float* f32(int64_t item) const { return static_cast<float*>(data) + item * item_size; }
  bf16* b16(int64_t item) const { return static_cast<bf16*>(data) + item * item_size; }
  void* at(int64_t item) const { return static_cast<char*>(data) + item * item_size * dtype_bytes(dtype); }
  int64_t item_bytes() const { return item_size * dtype_bytes(dtype) + (scale ? item_size / block * 4 : 0); }
};

// Which rows belong to which sequence: rows [start[i], start[i+1]) are positions past[i], past[i] + 1, ... of sequence
// i.
struct Ragged {
  Array<const int32_t> start;  // [sequences + 1]
  Array<const int32_t> past;   // [sequences]
  int64_t sequences() const { return past.count; }
};

}  // namespace lathe
