#pragma once

#include "ops/kda_scan/kda_scan.h"

namespace lathe {
namespace reference {
Status kda_scan(OpContext& ctx, const KdaScanArgs& args);
}
}  // namespace lathe
