#include "ops/kda_decode/variants.h"
#include "ops/kda_prefill/sequential.cuh"

namespace lathe::cuda {

bool kda_decode_applies(const KdaDecodeArgs& a) { return kda_fits(a.layer); }

Status kda_decode(OpContext& ctx, const KdaDecodeArgs& a) {
  return run_kda(ctx, {a.in, a.layer, a.memory, {}, a.past, a.slot, {}, {}, a.y});
}

}  // namespace lathe::cuda
