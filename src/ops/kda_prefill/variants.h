#pragma once

#include "ops/kda_prefill/kda_prefill.h"

namespace lathe {
namespace reference {
Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& args);
}
// Of the best instructions that this machine has.
namespace best {
Status chunked(OpContext& ctx, const KdaPrefillArgs& args);
Status sequential(OpContext& ctx, const KdaPrefillArgs& args);
}  // namespace best
namespace avx2 {
bool applies(const KdaPrefillArgs& args);
Status chunked(OpContext& ctx, const KdaPrefillArgs& args);
}  // namespace avx2
namespace portable {
bool applies(const KdaPrefillArgs& args);
Status chunked(OpContext& ctx, const KdaPrefillArgs& args);
}  // namespace portable
namespace cuda {
bool kda_prefill_chunked_applies(const KdaPrefillArgs& args);
Status kda_prefill_chunked(OpContext& ctx, const KdaPrefillArgs& args);
bool kda_prefill_applies(const KdaPrefillArgs& args);
Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& args);
}  // namespace cuda
}  // namespace lathe
