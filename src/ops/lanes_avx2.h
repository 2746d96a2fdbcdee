#pragma once

#include <immintrin.h>

#include "base/bf16.h"

// Eight floats at a time, for files named *_avx2.cc; the members are those of lanes_avx512.h.

namespace lathe {
namespace {

struct Lanes {
  using V = __m256;
  static constexpr int kCount = 8;

  static V zero() { return _mm256_setzero_ps(); }
  static V set(float x) { return _mm256_set1_ps(x); }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load(const bf16* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  // Up to n values; masked moves are slow, so whole registers go without.
  static V load(const float* p, int n) { return n >= kCount ? load(p) : _mm256_maskload_ps(p, first(n)); }
  static V load(const bf16* p, int n) {
    if (n >= kCount) return load(p);
    alignas(16) bf16 part[kCount] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load(part);
  }
  static void split(const bf16* p, V& even, V& odd) {
    split(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), even, odd);
  }
  static void split(const bf16* p, int n, V& even, V& odd) {
    alignas(32) bf16 part[2 * kCount] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    split(part, even, odd);
  }
  static void interleave(V even, V odd, V& first, V& second) {
    const V low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    first = _mm256_permute2f128_ps(low, high, 0x20);
    second = _mm256_permute2f128_ps(low, high, 0x31);
  }
  static void deinterleave(V first, V second, V& even, V& odd) {
    auto order = [](V v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); };
    even = order(_mm256_shuffle_ps(first, second, 0x88));
    odd = order(_mm256_shuffle_ps(first, second, 0xdd));
  }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static void store(bf16* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v)); }
  static void store(float* p, V v, int n) { n >= kCount ? store(p, v) : _mm256_maskstore_ps(p, first(n), v); }
  static void store(bf16* p, V v, int n) {
    if (n >= kCount) return store(p, v);
    alignas(16) bf16 part[kCount];
    store(part, v);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }

  // Kept in a register: GCC would rather load a value again for each use.
  static V pinned(V v) {
    asm("" : "+x"(v));
    return v;
  }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  static V round_bf16(V v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(rounded_bits(v), 16), 16));
  }
  static void store_rounded(bf16* p, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), high_halves(_mm256_castps_si256(v)));
  }
  static void store_rounded(float* p, V v) { store(p, v); }

  static void sum4(const V (&v)[4], float* out) {
    const V all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(out, _mm256_castps256_ps128(all) + _mm256_extractf128_ps(all, 1));
  }
  static float sum(V v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float largest(V v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  static V exp(V x) {
    const V n = _mm256_round_ps(max(set(-127), min(set(128), x * set(1.44269504f))),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const V r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), x));
    V p = fma(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
    p = fma(p, r, set(8.3334519073e-3f));
    p = fma(p, r, set(4.1665795894e-2f));
    p = fma(p, r, set(1.6666665459e-1f));
    p = fma(p, r, set(5.0000001201e-1f));
    p = fma(p, r * r, r + set(1));
    // 2^n in two factors: 2^128 isn't a float.
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    p = p * power_of_2(half) * power_of_2(_mm256_sub_epi32(whole, half));
    p = _mm256_blendv_ps(p, zero(), _mm256_cmp_ps(x, set(-87.5f), _CMP_LT_OQ));
    return _mm256_blendv_ps(p, set(__builtin_inff()), _mm256_cmp_ps(x, set(88.8f), _CMP_GT_OQ));
  }

 private:
  static void split(__m256i x, V& even, V& odd) {
    even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static V power_of_2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static V widen(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  static __m128i narrow(V v) { return high_halves(rounded_bits(v)); }
  static __m128i high_halves(__m256i x) {
    const __m256i high = _mm256_srli_epi32(x, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  static __m256i rounded_bits(V v) {
    const __m256i b = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    const __m256i more = _mm256_and_si256(_mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)),
                                          _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_ORD_Q)));
    return _mm256_add_epi32(b, more);
  }
};

}  // namespace
}  // namespace lathe
