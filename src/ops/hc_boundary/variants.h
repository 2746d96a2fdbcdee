#pragma once

#include "ops/hc_boundary/hc_boundary.h"

namespace lathe {
namespace reference {
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}
namespace portable {
bool hc_boundary_applies(const HcBoundaryArgs& args);
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}  // namespace portable
namespace avx2 {
bool hc_boundary_applies(const HcBoundaryArgs& args);
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}  // namespace avx2
namespace avx512 {
bool hc_boundary_applies(const HcBoundaryArgs& args);
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}  // namespace avx512
namespace cuda {
bool hc_boundary_applies(const HcBoundaryArgs& args);
Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args);
}  // namespace cuda
}  // namespace lathe
