#include "feedback/memory_loops.h"

#include <cstring>

#include "base/cpu_features.h"

namespace lathe {

namespace portable {

namespace {

void read(const char* from, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes / 8; ++i) sum += words[i];
  asm volatile("" : : "r"(sum));
}

void update(char* place, int64_t bytes) {
  auto* words = reinterpret_cast<uint64_t*>(place);
  for (int64_t i = 0; i < bytes / 8; ++i) words[i] += 1;
}

void copy(char* to, const char* from, int64_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace

MemoryLoops memory_loops() { return {"plain C++", read, update, copy, copy}; }

}  // namespace portable

MemoryLoops memory_loops() {
  if (cpu_features().avx512) return avx512::memory_loops();
  return cpu_features().avx2 ? avx2::memory_loops() : portable::memory_loops();
}

}  // namespace lathe
