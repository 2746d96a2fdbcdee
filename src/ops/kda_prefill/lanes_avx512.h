#pragma once

#include <immintrin.h>

#include <cstdint>

// 16 floats at once, for steps_body.h. Included by one file only; everything is local to it.
namespace lathe {
namespace {

using Lanes = __m512;
constexpr int kLanes = 16;
constexpr int kTileRows =
    8;  // x 2 vectors: 16 sums in flight cover the latency of two FMA pipes; 2 + 8 loads feed 16 FMAs

inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes all(float x) { return _mm512_set1_ps(x); }
inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Lanes x) { _mm512_storeu_ps(p, x); }
inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Lanes load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store_first(float* p, Lanes x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }

inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }    // a·b + c
inline Lanes fnma(Lanes a, Lanes b, Lanes c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a·b
inline float fma(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
// The second argument where either is NaN.
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
inline bool all_above(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) == 0xffff; }  // no where a is NaN
// a where x > limit, else b.
inline Lanes where_above(Lanes x, Lanes limit, Lanes a, Lanes b) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), b, a);
}
inline Lanes nearest(Lanes x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Lanes times_power_of_two(Lanes x, Lanes n) { return _mm512_scalef_ps(x, n); }
// x·2^n, where adding kShifter left n in the last places of `shifted`; x and the result are normal numbers.
constexpr float kShifter = 12582912;
inline Lanes times_shifted_power(Lanes x, Lanes shifted) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}
inline Lanes reciprocal(Lanes x) {  // 14 bits, doubled once
  const Lanes r = _mm512_rcp14_ps(x);
  return mul(r, fnma(x, r, all(2)));
}

inline __m512i bits(Lanes x) { return _mm512_castps_si512(x); }
inline Lanes from_bits(__m512i x) { return _mm512_castsi512_ps(x); }
// Drops `kDrop` bits of the mantissa, to nearest even. Infinity stays what it is, and NaN if its payload isn't all
// ones.
template <int kDrop>
inline Lanes shortened(Lanes x) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits(x), kDrop), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (kDrop - 1)) - 1));
  return from_bits(_mm512_and_si512(_mm512_add_epi32(bits(x), half), _mm512_set1_epi32(-1 << kDrop)));
}
inline Lanes widen(__m256i x) { return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
inline Lanes load(const uint16_t* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline Lanes load_first(const uint16_t* p, int n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
inline __m256i narrow(Lanes x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits(shortened<16>(x)), 16)); }
inline void store(uint16_t* p, Lanes x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
inline void store_first(uint16_t* p, Lanes x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow(x)); }

// p[0], p[stride], p[2·stride], ...
inline Lanes load_strided(const float* p, int stride) {
  const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_i32gather_ps(_mm512_mullo_epi32(at, _mm512_set1_epi32(stride)), p, 4);
}

// out[j] = p[j], p[4 + j], p[8 + j], ...
inline void load_fours(const float* p, Lanes (&out)[4]) {
  for (int j = 0; j < 4; ++j) out[j] = load_strided(p + j, 4);
}

// Of each 4 neighbouring lanes ((0 + 2) + (1 + 3)) of four vectors: those of a in lane 0, of b in lane 1, ...
inline Lanes sum_fours(Lanes a, Lanes b, Lanes c, Lanes d) {
  const Lanes ab = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Lanes cd = add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  return add(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)), _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
}
// The sum of each of four vectors: fours first, then neighbours.
inline void sum_each(Lanes a, Lanes b, Lanes c, Lanes d, float* sums) {
  const Lanes fours = sum_fours(a, b, c, d);
  const __m256 low = _mm512_castps512_ps256(fours), high = _mm512_extractf32x8_ps(fours, 1);
  const __m128 first_half = _mm_add_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
  const __m128 second_half = _mm_add_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
  _mm_storeu_ps(sums, _mm_add_ps(first_half, second_half));
}

// kLanes x kLanes floats.
inline void transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = load(in + i * in_stride);
  for (int i = 0; i < 16; i += 2)
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_shuffle_ps(t[i + j], t[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
      r[i + 2 * j + 1] = _mm512_shuffle_ps(t[i + j], t[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
    }
  // r[4g + c]: in each 128-bit quarter s, column 4s + c of rows 4g..4g+3
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88), t[4 + c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88),
          t[12 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
  }
  for (int c = 0; c < 4; ++c) {
    store(out + c * out_stride, _mm512_shuffle_f32x4(t[c], t[8 + c], 0x88));
    store(out + (8 + c) * out_stride, _mm512_shuffle_f32x4(t[c], t[8 + c], 0xdd));
    store(out + (4 + c) * out_stride, _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0x88));
    store(out + (12 + c) * out_stride, _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0xdd));
  }
}

}  // namespace
}  // namespace lathe
