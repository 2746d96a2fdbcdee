#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/sample/row_sampler.h"
#include "ops/sample/variants.h"

namespace lathe::avx512 {

bool sample_applies(const SampleArgs&) { return cpu_features().avx512; }

Status sample(OpContext& ctx, const SampleArgs& args) { return sample_rows(ctx, args); }

}  // namespace lathe::avx512
