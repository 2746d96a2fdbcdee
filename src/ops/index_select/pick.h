#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

// The `count` greatest of a row of scores, exactly: ties and NaN to the lower index. Three rounds of counting by radix
// find the least key that is in; one pass over the row takes them in order.

namespace lathe {
namespace {

// Order of floats as order of integers; NaN counts as -inf, -0 as 0.
inline uint32_t ordered_key(float x) {
  if (!(x == x)) x = -__builtin_inff();
  const uint32_t b = std::bit_cast<uint32_t>(x + 0.0f);
  return b ^ (static_cast<uint32_t>(static_cast<int32_t>(b) >> 31) | 0x80000000u);
}

struct Threshold {
  uint32_t key;   // of the last one taken
  int64_t equal;  // how many with just this key are taken
};

constexpr int kRadixBits = 11, kRadixBins = 1 << kRadixBits;

// bins[b] = how many keys have `b` in their bits from `shift` on, under `mask`. Four counters a bin, taken in turns:
// neighbours often fall into one bin, and an increment must wait for the last one of the same counter.
inline void count_bins(const uint32_t* keys, int64_t n, int shift, uint32_t mask, uint32_t* bins) {
  uint32_t turns[4][kRadixBins] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int t = 0; t < 4; ++t) ++turns[t][keys[i + t] >> shift & mask];
  for (; i < n; ++i) ++turns[0][keys[i] >> shift & mask];
  for (int b = 0; b < kRadixBins; ++b) bins[b] = turns[0][b] + turns[1][b] + turns[2][b] + turns[3][b];
}

// The count-th greatest of `keys`, 0 < count <= n. `work` has room for n.
// Picker::in_range(keys, n, least, most, out) keeps the keys of that range, in order, and tells how many.
template <class Picker>
Threshold find_threshold(const uint32_t* keys, int64_t n, int64_t count, uint32_t* work) {
  uint32_t bins[kRadixBins], prefix = 0;
  for (int shift = 32 - kRadixBits;; shift = std::max(0, shift - kRadixBits)) {
    const uint32_t mask = shift ? kRadixBins - 1 : (1u << (32 - 2 * kRadixBits)) - 1;
    count_bins(keys, n, shift, mask, bins);
    uint32_t bin = mask;
    while (bins[bin] < count) count -= bins[bin--];
    prefix |= bin << shift;
    if (shift == 0) return {prefix, count};
    n = Picker::in_range(keys, n, prefix, prefix | ((1u << shift) - 1), work);
    keys = work;
  }
}

// Indices of the taken, ascending. Picker::at_least(keys, n, key, out) lists the indices of keys that aren't less.
template <class Picker>
void pick_greatest(const float* scores, int64_t n, int64_t count, uint32_t* work, int32_t* out) {
  uint32_t *keys = work, *rest = work + n;
  for (int64_t i = 0; i < n; ++i) keys[i] = ordered_key(scores[i]);
  const Threshold t = find_threshold<Picker>(keys, n, count, rest);
  // Almost always that is all of them; `rest` has room for as many ties as there may be.
  int32_t* at_least = reinterpret_cast<int32_t*>(rest);
  const int64_t found = Picker::at_least(keys, n, t.key, at_least);
  int64_t equal = t.equal, taken = 0;
  for (int64_t i = 0; i < found; ++i) {
    const int32_t p = at_least[i];
    if (keys[p] == t.key && equal-- <= 0) continue;
    out[taken++] = p;
  }
}

struct PlainPicker {
  static int64_t in_range(const uint32_t* keys, int64_t n, uint32_t least, uint32_t most, uint32_t* out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = keys[i];
      out[found] = key, found += key >= least && key <= most;
    }
    return found;
  }
  static int64_t at_least(const uint32_t* keys, int64_t n, uint32_t key, int32_t* out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; ++i) out[found] = static_cast<int32_t>(i), found += keys[i] >= key;
    return found;
  }
};

}  // namespace
}  // namespace lathe
