#include "ops/kda_prefill/lanes_avx2.h"
#include "ops/kda_prefill/steps_body.h"

namespace lathe {

const KdaSteps& kda_steps_avx2() { return kSteps; }

}  // namespace lathe
