#include "ops/kda_prefill/lanes_portable.h"
#include "ops/kda_prefill/steps_body.h"

namespace lathe {

const KdaSteps& kda_steps_portable() { return kSteps; }

}  // namespace lathe
