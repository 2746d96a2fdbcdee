#pragma once

#include "ops/linear/linear.h"

namespace lathe {
namespace reference {
Status linear(OpContext& ctx, const LinearArgs& args);
}
namespace portable {
Status linear(OpContext& ctx, const LinearArgs& args);
}
namespace avx2 {
bool linear_applies(const LinearArgs& args);
Status linear(OpContext& ctx, const LinearArgs& args);
}  // namespace avx2
namespace avx512 {
bool linear_applies(const LinearArgs& args);
Status linear(OpContext& ctx, const LinearArgs& args);
}  // namespace avx512
namespace cuda {
Status linear(OpContext& ctx, const LinearArgs& args);
Status linear_one_order(OpContext& ctx, const LinearArgs& args);
}  // namespace cuda
}  // namespace lathe
