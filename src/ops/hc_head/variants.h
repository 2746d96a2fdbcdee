#pragma once

#include "ops/hc_head/hc_head.h"

namespace lathe {
namespace reference {
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}
namespace portable {
bool hc_head_applies(const HcHeadArgs& args);
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}  // namespace portable
namespace avx2 {
bool hc_head_applies(const HcHeadArgs& args);
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}  // namespace avx2
namespace avx512 {
bool hc_head_applies(const HcHeadArgs& args);
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}  // namespace avx512
namespace cuda {
bool hc_head_applies(const HcHeadArgs& args);
Status hc_head(OpContext& ctx, const HcHeadArgs& args);
}  // namespace cuda
}  // namespace lathe
