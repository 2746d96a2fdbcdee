#pragma once

#include "ops/linear/linear.h"

namespace lathe {
namespace reference {
Status linear(OpContext& ctx, const LinearArgs& args);
}
}  // namespace lathe
