#pragma once

#include "ops/kda_decode/kda_decode.h"

namespace lathe {
namespace reference {
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}
namespace portable {
bool applies(const KdaDecodeArgs& args);
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}  // namespace portable
namespace avx2 {
bool applies(const KdaDecodeArgs& args);
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}  // namespace avx2
namespace avx512 {
bool applies(const KdaDecodeArgs& args);
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}  // namespace avx512
namespace cuda {
bool kda_decode_fused_applies(const KdaDecodeArgs& args);
Status kda_decode_fused(OpContext& ctx, const KdaDecodeArgs& args);
bool kda_decode_applies(const KdaDecodeArgs& args);
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}  // namespace cuda
}  // namespace lathe
