#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/vision_attention/blocks.h"
#include "ops/vision_attention/variants.h"

namespace lathe::portable {

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) {
  return attend_on<FloatSteps<4, 2>>(ctx, args);
}

}  // namespace lathe::portable
