#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/norm/rows.h"
#include "ops/norm/variants.h"

namespace lathe::avx512 {

bool norm_applies(const NormArgs&) { return cpu_features().avx512; }

Status norm(OpContext& ctx, const NormArgs& args) { return norm_rows(ctx, args); }

}  // namespace lathe::avx512
