#pragma once

#include "ops/kda_decode/kda_decode.h"

namespace lathe {
namespace reference {
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args);
}
}  // namespace lathe
