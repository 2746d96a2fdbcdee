#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace lathe {

// A fast hash of short byte strings, for tables that live in this process only: eight bytes a step, each step a 64 x 64
// multiplication folded to 64 bits.
inline uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view bytes) {
  uint64_t h = bytes.size() * 0x9E3779B97F4A7C15u, word = 0;
  const char* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; p += 8, n -= 8) {
    std::memcpy(&word, p, 8);
    h = fold(h ^ word, 0xA0761D6478BD642Fu);
  }
  word = 0;
  for (size_t i = 0; i < n; ++i) word |= static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << 8 * i;
  return fold(h ^ word, 0xE7037ED1A0B428DBu);
}

}  // namespace lathe
