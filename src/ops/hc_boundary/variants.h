#pragma once

#include "ops/hc_boundary/hc_boundary.h"

namespace lathe {
namespace reference {
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}
}  // namespace lathe
