#include <immintrin.h>

#include "base/cpu_features.h"
#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::avx2 {

namespace {

struct Avx2 {
  using Step = float;
  using Vector = __m256;
  using StepVector = __m256;
  // 12 sums, 2 columns and a row: 15 of 16 registers.
  static constexpr int kDepth = 1, kLanes = 8, kRows = 6, kVectors = 2;

  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load_steps(const Step* p) { return _mm256_loadu_ps(p); }
  static Vector broadcast(Step x) { return _mm256_set1_ps(x); }
  static Vector dot(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Step step(const float* x, int64_t) { return *x; }
};

}  // namespace

bool vision_attention_applies(const VisionAttentionArgs&) { return cpu_features().avx2; }

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_all(attend_on<Avx2>, ctx, args);
}

}  // namespace lathe::avx2
