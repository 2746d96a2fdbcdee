#pragma once

#include "ops/lm_head/lm_head.h"

namespace lathe {
namespace reference {
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}
}  // namespace lathe
