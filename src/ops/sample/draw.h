#pragma once

#include <cstdint>

namespace lathe {

// u in [0, 1): a hash (splitmix64's finaliser, twice) of the request's seed and the position that is drawn. 53 bits.
inline double uniform_draw(uint64_t seed, int32_t position) {
  auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  };
  const uint64_t hash =
      mix(mix(seed + 0x9e3779b97f4a7c15ull) + (uint64_t{static_cast<uint32_t>(position)} + 1) * 0x9e3779b97f4a7c15ull);
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

}  // namespace lathe
