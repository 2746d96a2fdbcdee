#include <bit>

#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::avx512 {

namespace {

// 24 sums, 4 columns and a row: 29 of 32 registers, and 10 loads for 24 products.
constexpr int kRows = 6, kVectors = 4;

// Steps are pairs of bf16, the first in the low half.
struct Bf16Steps {
  using Step = uint32_t;
  using StepVector = __m512bh;
  static constexpr int kDepth = 2, kRows = avx512::kRows, kVectors = avx512::kVectors;

  static StepVector load_steps(const Step* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static StepVector broadcast(Step x) { return (__m512bh)_mm512_set1_epi32(static_cast<int>(x)); }
  static Lanes::V dot(Lanes::V sum, StepVector a, StepVector b) { return _mm512_dpbf16_ps(sum, a, b); }
  // q, k and v are bf16 already: nothing is rounded here. The weights are, in store_steps.
  static Step step(const float* x, int64_t distance) {
    return std::bit_cast<uint32_t>(x[0]) >> 16 | (std::bit_cast<uint32_t>(x[distance]) & 0xffff0000u);
  }
  static void store_steps(Step* p, Lanes::V v) { Lanes::store(reinterpret_cast<bf16*>(p), v); }
};

}  // namespace

bool vision_attention_applies(const VisionAttentionArgs&) { return cpu_features().avx512; }

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_on<FloatSteps<kRows, kVectors>>(ctx, args);
}

bool vision_attention_bf16_applies(const VisionAttentionArgs& args) {
  return cpu_features().avx512_bf16 && args.qkv.dtype == DType::kBF16;
}

Status vision_attention_bf16(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_on<Bf16Steps>(ctx, args);
}

}  // namespace lathe::avx512
