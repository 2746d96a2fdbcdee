#include "base/cpu_features.h"
#include "ops/lanes_avx2.h"
// After the lanes it is written over.
#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::avx2 {

bool vision_attention_applies(const VisionAttentionArgs&) { return cpu_features().avx2; }

// 12 sums, 2 columns and a row: 15 of 16 registers.
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_on<FloatSteps<6, 2>>(ctx, args);
}

}  // namespace lathe::avx2
