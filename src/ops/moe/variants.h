#pragma once

#include "ops/moe/moe.h"

namespace lathe {
namespace reference {
Status moe(OpContext& ctx, const MoeArgs& args);
}
namespace portable {
Status moe(OpContext& ctx, const MoeArgs& args);
}
namespace avx2 {
bool moe_applies(const MoeArgs& args);
Status moe(OpContext& ctx, const MoeArgs& args);
}  // namespace avx2
namespace avx512 {
bool moe_applies(const MoeArgs& args);
Status moe(OpContext& ctx, const MoeArgs& args);
}  // namespace avx512
namespace cuda {
bool moe_applies(const MoeArgs& args);
Status moe(OpContext& ctx, const MoeArgs& args);
}  // namespace cuda
}  // namespace lathe
