#include <algorithm>
#include <vector>

#include "ops/kda_prefill/oracle.h"
#include "ops/kda_scan/variants.h"

namespace lathe::reference {

namespace {

// A sequence's rows of this call, from the state and ring its slot holds.
void run_rows(const KdaScanArgs& args, int64_t sequence) {
  const KdaLayer& layer = args.layer;
  const int32_t begin = args.runs.start[sequence], end = args.runs.start[sequence + 1], slot = args.slot[sequence];
  if (slot < 0) kda_zero_rows(args.y, begin, end);
  if (slot < 0 || begin == end) return;
  auto states = kda_load_states(layer, args.memory, slot, args.runs.past[sequence]);
  for (int32_t row = begin; row < end; ++row) {
    const int64_t position = args.runs.past[sequence] + row - begin;
    for (int h = 0; h < layer.heads; ++h) {
      const KdaToken token = kda_token(args.in, layer, row, h, args.memory, slot, position);
      kda_store_output(kda_step(states[h], token), args.in, layer, row, h, args.y);
    }
    kda_push(args.in, row, args.memory, slot, position);
  }
  kda_store_states(states, args.memory, slot);
}

}  // namespace

// One segment after the other: what the scan must equal. Between ranks each passes on the state and ring it ended with.
Status kda_scan(OpContext& ctx, const KdaScanArgs& args) {
  const int ranks = ctx.comm ? ctx.comm->size() : 1;
  const int64_t state_bytes = args.memory.state.item_bytes(), conv_bytes = args.memory.conv.item_bytes();
  std::vector<char> unused(std::max(state_bytes, conv_bytes));  // of padded sequences
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < args.runs.sequences(); ++i) {
      if (!ctx.comm || ctx.comm->rank() == rank) run_rows(args, i);
      if (!ctx.comm) continue;
      const int32_t slot = args.slot[i];
      ctx.comm->broadcast(slot < 0 ? unused.data() : args.memory.state.at(slot), state_bytes, rank);
      ctx.comm->broadcast(slot < 0 ? unused.data() : args.memory.conv.at(slot), conv_bytes, rank);
    }
  return Status::ok();
}

}  // namespace lathe::reference
