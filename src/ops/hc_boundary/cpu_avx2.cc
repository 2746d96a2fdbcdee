#include "base/cpu_features.h"
#include "ops/lanes_avx2.h"
// After the lanes it is written over.
#include "ops/hc_boundary/blocks.h"
#include "ops/hc_boundary/variants.h"

namespace lathe::avx2 {

bool hc_boundary_applies(const HcBoundaryArgs& args) { return cpu_features().avx2 && args.copies <= kMaxCopies; }

Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args) { return Boundary(ctx, args).run(); }

}  // namespace lathe::avx2
