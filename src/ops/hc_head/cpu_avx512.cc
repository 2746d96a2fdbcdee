#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/hc_head/rows.h"
#include "ops/hc_head/variants.h"

namespace lathe::avx512 {

bool hc_head_applies(const HcHeadArgs& args) { return cpu_features().avx512 && args.copies <= kMaxCopies; }

Status hc_head(OpContext& ctx, const HcHeadArgs& args) { return mean_rows(ctx, args); }

}  // namespace lathe::avx512
