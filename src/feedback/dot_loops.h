#pragma once

#include <cstdint>

// Loops that do nothing but multiply and add, as fast as a core can: what the arithmetic of a roof is held against.

namespace lathe {

struct DotLoop {
  const char* instruction;  // what is repeated
  double flop_per_iteration;
  void (*run)(int64_t iterations);
};

struct DotLoops {
  DotLoop fp32, bf16, int8;
};

// The fastest of this machine and build (base/cpu_features.h). Where there is no instruction for a precision, its loop
// is what has to stand in: fp32 products for bf16.
DotLoops dot_loops();

namespace portable {
DotLoops dot_loops();
}
namespace avx2 {
DotLoops dot_loops();
}
namespace avx512 {
DotLoops dot_loops();
}

}  // namespace lathe
