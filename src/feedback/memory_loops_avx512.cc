#include <immintrin.h>

#include "feedback/memory_loops.h"

namespace lathe::avx512 {

namespace {

using Vector = __m512i;
constexpr int kUnroll = 8;
constexpr int64_t kStep = kUnroll * static_cast<int64_t>(sizeof(Vector));

void read(const char* from, int64_t bytes) {
  Vector sum[kUnroll] = {};
  for (int64_t at = 0; at < bytes; at += kStep) {
    const auto* v = reinterpret_cast<const Vector*>(from + at);
    for (int i = 0; i < kUnroll; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(v + i));
  }
  for (Vector& s : sum) asm volatile("" : : "v"(s));
}

void update(char* place, int64_t bytes) {
  const Vector one = _mm512_set1_epi32(1);
  for (int64_t at = 0; at < bytes; at += kStep) {
    auto* v = reinterpret_cast<Vector*>(place + at);
    for (int i = 0; i < kUnroll; ++i) _mm512_store_si512(v + i, _mm512_add_epi32(one, _mm512_load_si512(v + i)));
  }
}

void copy(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStep)
    for (int i = 0; i < kUnroll; ++i)
      _mm512_store_si512(reinterpret_cast<Vector*>(to + at) + i,
                         _mm512_load_si512(reinterpret_cast<const Vector*>(from + at) + i));
}

void copy_past_cache(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kStep)
    for (int i = 0; i < kUnroll; ++i)
      _mm512_stream_si512(reinterpret_cast<Vector*>(to + at) + i,
                          _mm512_load_si512(reinterpret_cast<const Vector*>(from + at) + i));
  _mm_sfence();
}

}  // namespace

MemoryLoops memory_loops() { return {"zmm", read, update, copy, copy_past_cache}; }

}  // namespace lathe::avx512
