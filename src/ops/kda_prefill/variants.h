#pragma once

#include "ops/kda_prefill/kda_prefill.h"

namespace lathe {
namespace reference {
Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& args);
}
}  // namespace lathe
