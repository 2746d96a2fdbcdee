#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// 4 floats at once in the compiler's own vectors, for steps_body.h: runs anywhere, without fused products. Included by
// one file only; everything is local to it.
namespace lathe {
namespace {

using Lanes = float __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kTileRows = 4;

inline Lanes all(float x) { return Lanes{x, x, x, x}; }
inline Lanes zero() { return all(0); }
inline Lanes load_first(const float* p, int n) {
  Lanes x = {};
  std::memcpy(&x, p, n * sizeof(float));
  return x;
}
inline Lanes load(const float* p) { return load_first(p, 4); }
inline void store_first(float* p, Lanes x, int n) { std::memcpy(p, &x, n * sizeof(float)); }
inline void store(float* p, Lanes x) { store_first(p, x, 4); }

inline Lanes add(Lanes a, Lanes b) { return a + b; }
inline Lanes sub(Lanes a, Lanes b) { return a - b; }
inline Lanes mul(Lanes a, Lanes b) { return a * b; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return a * b + c; }
inline Lanes fnma(Lanes a, Lanes b, Lanes c) { return c - a * b; }
inline float fma(float a, float b, float c) { return a * b + c; }
inline Words bits(Lanes x) { return reinterpret_cast<Words>(x); }
inline Lanes from_bits(Words x) { return reinterpret_cast<Lanes>(x); }
inline Lanes choose(Words mask, Lanes a, Lanes b) { return from_bits((mask & bits(a)) | (~mask & bits(b))); }
// The second argument where either is NaN.
inline Lanes max(Lanes a, Lanes b) { return choose(a > b, a, b); }
inline Lanes min(Lanes a, Lanes b) { return choose(a < b, a, b); }
inline bool all_above(Lanes a, Lanes b) {  // no where a is NaN
  const Words above = a > b;
  return (above[0] & above[1] & above[2] & above[3]) != 0;
}
// a where x > limit, else b.
inline Lanes where_above(Lanes x, Lanes limit, Lanes a, Lanes b) { return choose(x > limit, a, b); }
// |x| < 2^22: the sum's last place is 1.
inline Lanes nearest(Lanes x) { return (x + all(12582912)) - all(12582912); }
inline Lanes times_power_of_two(Lanes x, Lanes n) {  // n in [-127, 127]; 2^-127 counts as 0
  return x * from_bits((__builtin_convertvector(n, Words) + 127) << 23);
}
// x·2^n, where adding kShifter left n in the last places of `shifted`; x and the result are normal numbers.
constexpr float kShifter = 12582912;
inline Lanes times_shifted_power(Lanes x, Lanes shifted) { return from_bits(bits(x) + (bits(shifted) << 23)); }
inline Lanes reciprocal(Lanes x) { return all(1) / x; }

// Drops `kDrop` bits of the mantissa, to nearest even. Infinity stays what it is, and NaN if its payload isn't all
// ones.
template <int kDrop>
inline Lanes shortened(Lanes x) {
  const Words half = ((bits(x) >> kDrop) & 1) + ((1 << (kDrop - 1)) - 1);
  return from_bits((bits(x) + half) & (-1 << kDrop));
}
inline Lanes load_first(const uint16_t* p, int n) {
  Words x = {};
  for (int i = 0; i < n; ++i) x[i] = static_cast<int32_t>(uint32_t{p[i]} << 16);
  return from_bits(x);
}
inline Lanes load(const uint16_t* p) { return load_first(p, 4); }
inline void store_first(uint16_t* p, Lanes x, int n) {  // to nearest even
  const Words high = bits(shortened<16>(x)) >> 16;
  for (int i = 0; i < n; ++i) p[i] = static_cast<uint16_t>(high[i]);
}

inline void store(uint16_t* p, Lanes x) { store_first(p, x, 4); }

// p[0], p[stride], p[2·stride], ...
inline Lanes load_strided(const float* p, int stride) { return Lanes{p[0], p[stride], p[2 * stride], p[3 * stride]}; }
// out[j] = p[j], p[4 + j], p[8 + j], ...
inline void load_fours(const float* p, Lanes (&out)[4]) {
  for (int j = 0; j < 4; ++j) out[j] = load_strided(p + j, 4);
}

inline float sum_of(Lanes a) { return (a[0] + a[2]) + (a[1] + a[3]); }
// The sum of each of four vectors.
inline void sum_each(Lanes a, Lanes b, Lanes c, Lanes d, float* sums) {
  sums[0] = sum_of(a), sums[1] = sum_of(b), sums[2] = sum_of(c), sums[3] = sum_of(d);
}

// kLanes x kLanes floats.
inline void transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) out[j * out_stride + i] = in[i * in_stride + j];
}

}  // namespace
}  // namespace lathe
