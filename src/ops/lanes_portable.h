#pragma once

#include <cmath>

#include "base/bf16.h"

// Four floats at a time, on any machine; the members are those of lanes_avx512.h.

namespace lathe {
namespace {

struct Lanes {
  typedef float V __attribute__((vector_size(16)));
  static constexpr int kCount = 4;

  static V zero() { return V{}; }
  static V set(float x) { return V{x, x, x, x}; }

  static V load(const float* p) { return V{p[0], p[1], p[2], p[3]}; }
  static V load(const bf16* p) { return V{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])}; }
  template <class T>
  static V load(const T* p, int n) {
    T part[kCount] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load(part);
  }
  static void split(const bf16* p, V& even, V& odd) {
    even = V{to_float(p[0]), to_float(p[2]), to_float(p[4]), to_float(p[6])};
    odd = V{to_float(p[1]), to_float(p[3]), to_float(p[5]), to_float(p[7])};
  }
  static void split(const bf16* p, int n, V& even, V& odd) {
    bf16 part[2 * kCount] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    split(part, even, odd);
  }
  static void interleave(V even, V odd, V& first, V& second) {
    first = V{even[0], odd[0], even[1], odd[1]};
    second = V{even[2], odd[2], even[3], odd[3]};
  }
  static void deinterleave(V first, V second, V& even, V& odd) {
    even = V{first[0], first[2], second[0], second[2]};
    odd = V{first[1], first[3], second[1], second[3]};
  }
  static void store(float* p, V v) {
    for (int i = 0; i < kCount; ++i) p[i] = v[i];
  }
  static void store(bf16* p, V v) {
    for (int i = 0; i < kCount; ++i) p[i] = to_bf16(v[i]);
  }
  template <class T>
  static void store(T* p, V v, int n) {
    T part[kCount];
    store(part, v);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }

  static V pinned(V v) { return v; }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V max(V a, V b) { return a > b ? a : b; }
  static V min(V a, V b) { return a < b ? a : b; }
  static V round_bf16(V v) {
    for (int i = 0; i < kCount; ++i) v[i] = lathe::round_bf16(v[i]);
    return v;
  }
  template <class T>
  static void store_rounded(T* p, V v) {
    store(p, v);
  }

  static void sum4(const V (&v)[4], float* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
  static float sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static float largest(V v) {
    const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
  }
  static V exp(V x) {
    for (int i = 0; i < kCount; ++i) x[i] = std::exp(x[i]);
    return x;
  }
};

}  // namespace
}  // namespace lathe
