#pragma once

#include "ops/hc_head/hc_head.h"

namespace lathe {
namespace reference {
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}
}  // namespace lathe
