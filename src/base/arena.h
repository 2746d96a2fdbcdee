#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/view.h"

namespace lathe {

// Memory that is taken piece by piece and given back all at once, or back to a mark. Pieces are aligned to 64 bytes.
// Running out is a broken plan, not bad input: capacity is computed before a step begins.
class Arena {
 public:
  static Result<Arena> create(Device& device, int64_t capacity_bytes);

  void* take(int64_t bytes);
  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  // Fresh rows with stride == width; 8-bit rows get their scales.
  Rows rows(int64_t rows, int64_t width, DType dtype);

  int64_t mark() const { return used_; }
  void reset(int64_t mark = 0) { used_ = mark; }
  int64_t peak_bytes() const { return peak_; }
  int64_t capacity_bytes() const { return buffer_.bytes(); }

 private:
  DeviceBuffer buffer_;
  int64_t used_ = 0, peak_ = 0;
};

// Gives back everything taken since its construction.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.reset(mark_); }
  ArenaScope(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t mark_;
};

}  // namespace lathe
