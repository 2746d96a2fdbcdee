#pragma once

#include <cstddef>

namespace lathe {

// A stretch of bytes, [begin, end).
struct ByteRange {
  size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace lathe
