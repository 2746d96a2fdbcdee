#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/norm/rows.h"
#include "ops/norm/variants.h"

namespace lathe::portable {

Status norm(OpContext& ctx, const NormArgs& args) { return norm_rows(ctx, args); }

}  // namespace lathe::portable
