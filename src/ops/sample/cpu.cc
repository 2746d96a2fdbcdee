#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/sample/row_sampler.h"
#include "ops/sample/variants.h"

namespace lathe::portable {

bool sample_applies(const SampleArgs&) { return true; }

Status sample(OpContext& ctx, const SampleArgs& args) { return sample_rows(ctx, args); }

}  // namespace lathe::portable
