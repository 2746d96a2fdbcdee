#include <immintrin.h>

#include "feedback/memory_loops.h"

namespace lathe::avx2 {

namespace {

using Vector = __m256i;
constexpr int kUnroll = 8;
constexpr int64_t kStep = kUnroll * static_cast<int64_t>(sizeof(Vector));

void read(const char* from, int64_t bytes) {
  Vector sum[kUnroll] = {};
  for (int64_t at = 0; at < bytes; at += kStep) {
    const auto* v = reinterpret_cast<const Vector*>(from + at);
    for (int i = 0; i < kUnroll; ++i) sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(v + i));
  }
  for (Vector& s : sum) asm volatile("" : : "x"(s));
}

void update(char* place, int64_t bytes) {
  const Vector one = _mm256_set1_epi32(1);
  for (int64_t at = 0; at < bytes; at += kStep) {
    auto* v = reinterpret_cast<Vector*>(place + at);
    for (int i = 0; i < kUnroll; ++i) _mm256_store_si256(v + i, _mm256_add_epi32(one, _mm256_load_si256(v + i)));
  }
}

void copy(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStep)
    for (int i = 0; i < kUnroll; ++i)
      _mm256_store_si256(reinterpret_cast<Vector*>(to + at) + i,
                         _mm256_load_si256(reinterpret_cast<const Vector*>(from + at) + i));
}

void copy_past_cache(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStep)
    for (int i = 0; i < kUnroll; ++i)
      _mm256_stream_si256(reinterpret_cast<Vector*>(to + at) + i,
                          _mm256_load_si256(reinterpret_cast<const Vector*>(from + at) + i));
  _mm_sfence();
}

}  // namespace

MemoryLoops memory_loops() { return {"ymm", read, update, copy, copy_past_cache}; }

}  // namespace lathe::avx2
