#pragma once

#include <immintrin.h>

#include "base/bf16.h"

// Sixteen floats at a time, for files named *_avx512.cc. The anonymous namespace keeps what is compiled with their
// flags out of files that have none.

namespace lathe {
namespace {

struct Lanes {
  using V = __m512;
  static constexpr int kCount = 16;

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float x) { return _mm512_set1_ps(x); }
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load(const bf16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  // The first n <= kCount values, then zeroes; memory behind them isn't read.
  static V load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static V load(const bf16* p, int n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
  // 2·kCount values as those at even and those at odd places: half the work of load(), where order doesn't matter.
  static void split(const bf16* p, V& even, V& odd) { split(_mm512_loadu_si512(p), even, odd); }
  static void split(const bf16* p, int n, V& even, V& odd) {
    split(_mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p), even, odd);
  }
  // Undoes split(): the first and the second kCount values.
  static void interleave(V even, V odd, V& first, V& second) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    first = _mm512_permutex2var_ps(even, low, odd);
    second = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
  }
  static void deinterleave(V first, V second, V& even, V& odd) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(first, evens, second);
    odd = _mm512_permutex2var_ps(first, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), second);
  }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store(bf16* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v)); }
  static void store(float* p, V v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
  static void store(bf16* p, V v, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow(v)); }

  // Kept in a register: GCC would rather load a value again for each use.
  static V pinned(V v) {
    asm("" : "+v"(v));
    return v;
  }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }  // b where a is NaN
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  // Rounded to what bf16 can hold; of such values store_rounded() needs no rounding.
  static V round_bf16(V v) {
    return _mm512_castsi512_ps(_mm512_and_si512(rounded_bits(v), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void store_rounded(bf16* p, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), high_halves(_mm512_castps_si512(v)));
  }
  static void store_rounded(float* p, V v) { store(p, v); }

  // out[i] = sum of v[i], each in the same order.
  static void sum4(const V (&v)[4], float* out) {
    const V ab = _mm512_unpacklo_ps(v[0], v[1]) + _mm512_unpackhi_ps(v[0], v[1]);
    const V cd = _mm512_unpacklo_ps(v[2], v[3]) + _mm512_unpackhi_ps(v[2], v[3]);
    const __m512d p = _mm512_castps_pd(ab), q = _mm512_castps_pd(cd);
    const V all = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q)) + _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
    _mm_storeu_ps(out, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
  }
  static float sum(V v) { return _mm512_reduce_add_ps(v); }
  static float largest(V v) { return _mm512_reduce_max_ps(v); }

  // To 2 units in the last place; 0 below -104, infinity above 89, NaN stays.
  static V exp(V x) {
    x = max(set(-110), min(set(100), x));
    const V n = _mm512_roundscale_ps(x * set(1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const V r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), x));
    V p = fma(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
    p = fma(p, r, set(8.3334519073e-3f));
    p = fma(p, r, set(4.1665795894e-2f));
    p = fma(p, r, set(1.6666665459e-1f));
    p = fma(p, r, set(5.0000001201e-1f));
    p = fma(p, r * r, r + set(1));
    return _mm512_scalef_ps(p, n);
  }

 private:
  static void split(__m512i x, V& even, V& odd) {
    even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static V widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  static __m256i narrow(V v) { return high_halves(rounded_bits(v)); }
  static __m256i high_halves(__m512i x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)); }
  // To nearest even in the high half. A NaN keeps its bits: arithmetic makes quiet ones only, whose high half is a NaN.
  static __m512i rounded_bits(V v) {
    const __m512i b = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    return _mm512_mask_add_epi32(b, _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), b,
                                 _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  }
};

}  // namespace
}  // namespace lathe
