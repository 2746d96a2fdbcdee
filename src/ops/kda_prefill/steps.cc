#include "ops/kda_prefill/steps.h"

#include "base/cpu_features.h"

namespace lathe {

const KdaSteps& kda_steps() {
  if (cpu_features().avx512) return kda_steps_avx512();
  return cpu_features().avx2 ? kda_steps_avx2() : kda_steps_portable();
}

KdaSizes kda_sizes(int k, int v) { return {k, v, (k + 15) / 16 * 16, (v + 31) / 32 * 32}; }

}  // namespace lathe
