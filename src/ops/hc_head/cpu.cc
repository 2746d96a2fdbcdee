#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/hc_head/rows.h"
#include "ops/hc_head/variants.h"

namespace lathe::portable {

bool hc_head_applies(const HcHeadArgs& args) { return args.copies <= kMaxCopies; }

Status hc_head(OpContext& ctx, const HcHeadArgs& args) { return mean_rows(ctx, args); }

}  // namespace lathe::portable
