#pragma once

#include "ops/moe/moe.h"

namespace lathe {
namespace reference {
Status moe(OpContext& ctx, const MoeArgs& args);
}
}  // namespace lathe
