#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::portable {

namespace {

struct Portable {
  using Step = float;
  using Vector = float __attribute__((vector_size(16)));  // every 64-bit machine has four lanes
  using StepVector = Vector;
  static constexpr int kDepth = 1, kLanes = 4, kRows = 4, kVectors = 4;

  static Vector load(const float* p) { return Vector{p[0], p[1], p[2], p[3]}; }
  static Vector load_steps(const Step* p) { return load(p); }
  static Vector broadcast(Step x) { return Vector{x, x, x, x}; }
  static Vector dot(Vector sum, Vector a, Vector b) { return sum + a * b; }
  static void store(float* p, Vector v) {
    for (int i = 0; i < kLanes; ++i) p[i] = v[i];
  }
  static Step step(const float* x, int64_t) { return *x; }
};

}  // namespace

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_all(attend_on<Portable>, ctx, args);
}

}  // namespace lathe::portable
