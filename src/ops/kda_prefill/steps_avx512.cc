#include "ops/kda_prefill/lanes_avx512.h"
#include "ops/kda_prefill/steps_body.h"

namespace lathe {

const KdaSteps& kda_steps_avx512() { return kSteps; }

}  // namespace lathe
