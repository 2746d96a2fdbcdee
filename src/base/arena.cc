#include "base/arena.h"

#include <algorithm>

namespace lathe {

namespace {
constexpr int64_t kAlignment = 64;
}

Result<Arena> Arena::create(Device& device, int64_t capacity_bytes) {
  Arena arena;
  LATHE_ASSIGN(arena.buffer_, DeviceBuffer::allocate(device, capacity_bytes));
  return arena;
}

void* Arena::take(int64_t bytes) {
  LATHE_CHECK(bytes >= 0);
  const int64_t begin = used_;
  const int64_t end = begin + (bytes + kAlignment - 1) / kAlignment * kAlignment;
  LATHE_CHECK(end <= buffer_.bytes());
  used_ = end;
  peak_ = std::max(peak_, end);
  return buffer_.as<char>() + begin;
}

Rows Arena::rows(int64_t rows, int64_t width, DType dtype) {
  Rows r{
      .data = take(rows * width * dtype_bytes(dtype)), .dtype = dtype, .rows = rows, .width = width, .stride = width};
  if (dtype == DType::kI8 || dtype == DType::kE4M3) r.scale = take<float>(rows);
  return r;
}

}  // namespace lathe
