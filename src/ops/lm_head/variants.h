#pragma once

#include "ops/lm_head/lm_head.h"

namespace lathe {
namespace reference {
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}
namespace portable {
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}
namespace avx2 {
bool lm_head_applies(const LmHeadArgs& args);
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}  // namespace avx2
namespace avx512 {
bool lm_head_applies(const LmHeadArgs& args);
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}  // namespace avx512
namespace cuda {
Status lm_head(OpContext& ctx, const LmHeadArgs& args);
}
}  // namespace lathe
