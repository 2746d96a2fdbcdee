#include <cstring>

#include "ops/kda_prefill/oracle.h"
#include "ops/kda_prefill/variants.h"

namespace lathe::reference {

Status kda_prefill(OpContext&, const KdaPrefillArgs& args) {
  const KdaLayer& layer = args.layer;
  const KdaMemory& memory = args.memory;
  int64_t checkpoint = 0;
  for (int64_t i = 0; i < args.runs.sequences(); ++i) {
    const int32_t begin = args.runs.start[i], end = args.runs.start[i + 1], slot = args.slot[i];
    if (slot < 0) {
      kda_zero_rows(args.y, begin, end);
      continue;
    }
    if (begin == end) continue;
    auto states = kda_load_states(layer, memory, slot, args.runs.past[i]);
    for (int32_t row = begin; row < end; ++row) {
      const int64_t position = args.runs.past[i] + row - begin;
      for (int h = 0; h < layer.heads; ++h) {
        const KdaToken token = kda_token(args.in, layer, row, h, memory, slot, position);
        kda_store_output(kda_step(states[h], token), args.in, layer, row, h, args.y);
      }
      kda_push(args.in, row, memory, slot, position);
      while (checkpoint < args.checkpoint_row.count && args.checkpoint_row[checkpoint] < row) ++checkpoint;
      for (; checkpoint < args.checkpoint_row.count && args.checkpoint_row[checkpoint] == row; ++checkpoint) {
        const int32_t to = args.checkpoint_slot[checkpoint];
        kda_store_states(states, memory, to);
        std::memcpy(memory.conv.at(to), memory.conv.at(slot), memory.conv.item_bytes());
      }
    }
    kda_store_states(states, memory, slot);
  }
  return Status::ok();
}

}  // namespace lathe::reference
