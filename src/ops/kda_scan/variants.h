#pragma once

#include "ops/kda_scan/kda_scan.h"

namespace lathe {
namespace reference {
Status kda_scan(OpContext& ctx, const KdaScanArgs& args);
}
// Of the best instructions that this machine has.
namespace cpu {
bool applies(const KdaScanArgs& args);
bool narrow_rows(const KdaScanArgs& args);  // TF32 isn't enough for the tolerance of f32 rows
Status increment(OpContext& ctx, const KdaScanArgs& args);
Status increment_tf32(OpContext& ctx, const KdaScanArgs& args);
Status product_tf32(OpContext& ctx, const KdaScanArgs& args);
}  // namespace cpu
namespace cuda {
bool kda_scan_applies(const KdaScanArgs& args);
Status kda_scan(OpContext& ctx, const KdaScanArgs& args);
}  // namespace cuda
}  // namespace lathe
