#pragma once

#include <cstdint>

// One pass over memory, by one thread. Sizes are multiples of 4096, addresses of 64.

namespace lathe {

struct MemoryLoops {
  const char* instructions;
  void (*read)(const char* from, int64_t bytes);
  void (*update)(char* place, int64_t bytes);  // each word read, changed, written back
  void (*copy)(char* to, const char* from, int64_t bytes);
  void (*copy_past_cache)(char* to, const char* from, int64_t bytes);  // non-temporal stores: no read for ownership
};

// The widest that this machine and build has.
MemoryLoops memory_loops();

namespace portable {
MemoryLoops memory_loops();
}
namespace avx2 {
MemoryLoops memory_loops();
}
namespace avx512 {
MemoryLoops memory_loops();
}

}  // namespace lathe
