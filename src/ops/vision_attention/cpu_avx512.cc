#include <immintrin.h>

#include <bit>

#include "base/cpu_features.h"
#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::avx512 {

namespace {

struct Avx512 {
  using Step = float;
  using Vector = __m512;
  using StepVector = __m512;
  // 24 sums, 4 columns and a row: 29 of 32 registers, and 10 loads for 24 products.
  static constexpr int kDepth = 1, kLanes = 16, kRows = 6, kVectors = 4;

  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector load_steps(const Step* p) { return _mm512_loadu_ps(p); }
  static Vector broadcast(Step x) { return _mm512_set1_ps(x); }
  static Vector dot(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Step step(const float* x, int64_t) { return *x; }
};

struct Avx512Bf16 : Avx512 {
  using Step = uint32_t;  // a pair of bf16, the first in the low half
  using StepVector = __m512bh;
  static constexpr int kDepth = 2;

  static StepVector load_steps(const Step* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static StepVector broadcast(Step x) { return (__m512bh)_mm512_set1_epi32(static_cast<int>(x)); }
  static Vector dot(Vector sum, StepVector a, StepVector b) { return _mm512_dpbf16_ps(sum, a, b); }
  // Rounds the weights alone, since q, k and v are bf16 already. A NaN weight shows in its row's sum of weights.
  static uint32_t narrow(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    return (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  }
  static Step step(const float* x, int64_t distance) { return narrow(x[0]) | narrow(x[distance]) << 16; }
};

}  // namespace

bool vision_attention_applies(const VisionAttentionArgs&) { return cpu_features().avx512; }

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_all(attend_on<Avx512>, ctx, args);
}

bool vision_attention_bf16_applies(const VisionAttentionArgs& args) {
  return cpu_features().avx512_bf16 && args.qkv.dtype == DType::kBF16;
}

Status vision_attention_bf16(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_all(attend_on<Avx512Bf16>, ctx, args);
}

}  // namespace lathe::avx512
