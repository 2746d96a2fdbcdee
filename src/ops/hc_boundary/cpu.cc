#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/hc_boundary/blocks.h"
#include "ops/hc_boundary/variants.h"

namespace lathe::portable {

bool hc_boundary_applies(const HcBoundaryArgs& args) { return args.copies <= kMaxCopies; }

Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args) { return Boundary(ctx, args).run(); }

}  // namespace lathe::portable
