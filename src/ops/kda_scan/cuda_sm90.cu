#include "ops/kda_prefill/sequential.cuh"
#include "ops/kda_scan/variants.h"

namespace lathe::cuda {

bool kda_scan_applies(const KdaScanArgs& a) { return kda_fits(a.layer); }

// One segment after the other: what the scan must equal.
Status kda_scan(OpContext& ctx, const KdaScanArgs& a) {
  if (ctx.comm && ctx.comm->size() > 1)
    return invalid("segments over ranks need a communicator of cards, which this build doesn't have");
  return run_kda(ctx, {a.in, a.layer, a.memory, a.runs.start, a.runs.past, a.slot, {}, {}, a.y});
}

}  // namespace lathe::cuda
