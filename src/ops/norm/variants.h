#pragma once

#include "ops/norm/norm.h"

namespace lathe {
namespace reference {
Status norm(OpContext& ctx, const NormArgs& args);
}
namespace portable {
Status norm(OpContext& ctx, const NormArgs& args);
}
namespace avx2 {
bool norm_applies(const NormArgs& args);
Status norm(OpContext& ctx, const NormArgs& args);
}  // namespace avx2
namespace avx512 {
bool norm_applies(const NormArgs& args);
Status norm(OpContext& ctx, const NormArgs& args);
}  // namespace avx512
namespace cuda {
Status norm(OpContext& ctx, const NormArgs& args);
}
}  // namespace lathe
