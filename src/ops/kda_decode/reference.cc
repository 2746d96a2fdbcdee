#include "ops/kda_decode/variants.h"
#include "ops/kda_prefill/oracle.h"

namespace lathe::reference {

Status kda_decode(OpContext&, const KdaDecodeArgs& args) {
  const KdaLayer& layer = args.layer;
  const KdaMemory& memory = args.memory;
  for (int64_t row = 0; row < args.in.qkv.rows; ++row) {
    const int64_t slot = args.slot[row], position = args.past[row];
    if (slot < 0) {
      kda_zero_rows(args.y, row, row + 1);
      continue;
    }
    auto states = kda_load_states(layer, memory, slot, position);
    for (int h = 0; h < layer.heads; ++h) {
      const KdaToken token = kda_token(args.in, layer, row, h, memory, slot, position);
      kda_store_output(kda_step(states[h], token), args.in, layer, row, h, args.y);
    }
    kda_push(args.in, row, memory, slot, position);
    kda_store_states(states, memory, slot);
  }
  return Status::ok();
}

}  // namespace lathe::reference
