#pragma once

#include "ops/vision_attention/vision_attention.h"

namespace lathe {
namespace reference {
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
}
namespace portable {
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
}
namespace avx2 {
bool vision_attention_applies(const VisionAttentionArgs& args);
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
}  // namespace avx2
namespace avx512 {
bool vision_attention_applies(const VisionAttentionArgs& args);
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
// Rows in bf16 only: products of bf16 pairs, probabilities rounded to bf16; sums and softmax in fp32.
bool vision_attention_bf16_applies(const VisionAttentionArgs& args);
Status vision_attention_bf16(OpContext& ctx, const VisionAttentionArgs& args);
}  // namespace avx512
namespace cuda {
bool vision_attention_applies(const VisionAttentionArgs& args);
Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args);
}  // namespace cuda
}  // namespace lathe
