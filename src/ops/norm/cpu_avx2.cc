#include "base/cpu_features.h"
#include "ops/lanes_avx2.h"
// After the lanes it is written over.
#include "ops/norm/rows.h"
#include "ops/norm/variants.h"

namespace lathe::avx2 {

bool norm_applies(const NormArgs&) { return cpu_features().avx2; }

Status norm(OpContext& ctx, const NormArgs& args) { return norm_rows(ctx, args); }

}  // namespace lathe::avx2
