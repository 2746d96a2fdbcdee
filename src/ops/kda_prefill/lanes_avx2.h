#pragma once

#include <immintrin.h>

#include <cstdint>

// 8 floats at once, for steps_body.h. Included by one file only; everything is local to it.
namespace lathe {
namespace {

using Lanes = __m256;
constexpr int kLanes = 8;
constexpr int kTileRows = 4;  // x 2 vectors: 8 sums, 2 operands and a broadcast stay in 16 registers

inline Lanes zero() { return _mm256_setzero_ps(); }
inline Lanes all(float x) { return _mm256_set1_ps(x); }
inline Lanes load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Lanes x) { _mm256_storeu_ps(p, x); }
inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Lanes load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
inline void store_first(float* p, Lanes x, int n) { _mm256_maskstore_ps(p, first(n), x); }

inline Lanes add(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm256_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }    // a·b + c
inline Lanes fnma(Lanes a, Lanes b, Lanes c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a·b
inline float fma(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
// The second argument where either is NaN.
inline Lanes max(Lanes a, Lanes b) { return _mm256_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm256_min_ps(a, b); }
inline bool all_above(Lanes a, Lanes b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) == 0xff;
}  // no where a is NaN
// a where x > limit, else b.
inline Lanes where_above(Lanes x, Lanes limit, Lanes a, Lanes b) {
  return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_GT_OQ));
}
inline Lanes nearest(Lanes x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Lanes times_power_of_two(Lanes x, Lanes n) {  // n in [-127, 127]; 2^-127 counts as 0
  return mul(
      x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
}
// x·2^n, where adding kShifter left n in the last places of `shifted`; x and the result are normal numbers.
constexpr float kShifter = 12582912;
inline Lanes times_shifted_power(Lanes x, Lanes shifted) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
inline Lanes reciprocal(Lanes x) { return _mm256_div_ps(all(1), x); }

inline __m256i bits(Lanes x) { return _mm256_castps_si256(x); }
inline Lanes from_bits(__m256i x) { return _mm256_castsi256_ps(x); }
// Drops `kDrop` bits of the mantissa, to nearest even. Infinity stays what it is, and NaN if its payload isn't all
// ones.
template <int kDrop>
inline Lanes shortened(Lanes x) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits(x), kDrop), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (kDrop - 1)) - 1));
  return from_bits(_mm256_and_si256(_mm256_add_epi32(bits(x), half), _mm256_set1_epi32(-1 << kDrop)));
}
inline Lanes load(const uint16_t* p) {
  return from_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline Lanes load_first(const uint16_t* p, int n) {
  uint16_t whole[8] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return load(whole);
}
inline __m128i narrow(Lanes x) {
  const __m256i high = _mm256_srli_epi32(bits(shortened<16>(x)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
inline void store(uint16_t* p, Lanes x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }
inline void store_first(uint16_t* p, Lanes x, int n) {
  uint16_t whole[8];
  store(whole, x);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}

// p[0], p[stride], p[2·stride], ...
inline Lanes load_strided(const float* p, int stride) {
  return _mm256_i32gather_ps(
      p, _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(stride)), 4);
}

// out[j] = p[j], p[4 + j], p[8 + j], ...
inline void load_fours(const float* p, Lanes (&out)[4]) {
  const Lanes r0 = load(p), r1 = load(p + 8), r2 = load(p + 16), r3 = load(p + 24);
  const Lanes a = _mm256_permute2f128_ps(r0, r2, 0x20), b = _mm256_permute2f128_ps(r0, r2, 0x31),
              c = _mm256_permute2f128_ps(r1, r3, 0x20), d = _mm256_permute2f128_ps(r1, r3, 0x31);
  const Lanes ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b), cd_low = _mm256_unpacklo_ps(c, d),
              cd_high = _mm256_unpackhi_ps(c, d);
  out[0] = _mm256_shuffle_ps(ab_low, cd_low, _MM_SHUFFLE(1, 0, 1, 0));
  out[1] = _mm256_shuffle_ps(ab_low, cd_low, _MM_SHUFFLE(3, 2, 3, 2));
  out[2] = _mm256_shuffle_ps(ab_high, cd_high, _MM_SHUFFLE(1, 0, 1, 0));
  out[3] = _mm256_shuffle_ps(ab_high, cd_high, _MM_SHUFFLE(3, 2, 3, 2));
}

// The sum of each of four vectors: of 4 neighbouring lanes ((0 + 2) + (1 + 3)), then neighbours.
inline void sum_each(Lanes a, Lanes b, Lanes c, Lanes d, float* sums) {
  const Lanes ab = add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const Lanes cd = add(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const Lanes fours =
      add(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)), _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

// kLanes x kLanes floats.
inline void transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = load(in + i * in_stride);
  for (int i = 0; i < 8; i += 2)
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
      r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
    }
  for (int c = 0; c < 4; ++c) {
    store(out + c * out_stride, _mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
    store(out + (4 + c) * out_stride, _mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
  }
}

}  // namespace
}  // namespace lathe
