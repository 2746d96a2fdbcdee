#include <algorithm>
#include <vector>

#include "base/cpu_features.h"
#include "ops/kda_decode/variants.h"
#include "ops/kda_prefill/head_work.h"

namespace lathe {

namespace {

// How much of a state is fetched while its token is activated.
constexpr int64_t kEarlyFloats = 4096;

// A task is a head of a row. Its state is read and written once; all else stays in the nearest cache.
Status decode(OpContext& ctx, const KdaDecodeArgs& args, const KdaSteps& steps) {
  const KdaLayer& layer = args.layer;
  ArenaScope scope(*ctx.scratch);
  std::vector<KdaHeadWork> works;
  std::vector<float*> outputs;
  for (int i = 0; i < ctx.pool->threads(); ++i) {
    works.emplace_back(steps, layer, 1, *ctx.scratch);
    outputs.push_back(ctx.scratch->take<float>(works[i].sizes.vp));
  }
  ctx.pool->run(args.in.qkv.rows * layer.heads, [&](int64_t task, int worker) {
    const FlushTinyNumbers flush;
    const int64_t row = task / layer.heads, slot = args.slot[row], position = args.past[row];
    const int head = static_cast<int>(task % layer.heads);
    if (slot < 0) return zero_kda_rows(args.y.columns(int64_t{head} * layer.v, layer.v), row, row + 1);
    KdaHeadWork& work = works[worker];
    work.take_head(head);
    float* state = work.state(args.memory, slot);
    for (int64_t i = 0; i < std::min<int64_t>(kEarlyFloats, int64_t{layer.v} * layer.k); i += 16)
      __builtin_prefetch(state + i, 1);
    work.activate(args.in, args.memory, {slot, row, row + 1, position}, row, 1);
    work.decay_tokens(1);
    push_kda_head(args.in, args.memory, layer, head, row, slot, position);
    if (position == 0) std::fill_n(state, int64_t{layer.v} * layer.k, 0.0f);
    steps.decode(work.sizes, state, work.block.k, work.vectors[0], work.block.v, work.block.b[0], outputs[worker]);
    store_kda_rows(work, args.in, args.y, row, 1, outputs[worker]);
  });
  return Status::ok();
}

bool state_is_f32(const KdaDecodeArgs& args) { return args.memory.state.dtype == DType::kF32; }

}  // namespace

namespace portable {
bool applies(const KdaDecodeArgs& args) { return state_is_f32(args); }
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args) { return decode(ctx, args, kda_steps_portable()); }
}  // namespace portable

namespace avx2 {
bool applies(const KdaDecodeArgs& args) { return state_is_f32(args) && cpu_features().avx2; }
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args) { return decode(ctx, args, kda_steps_avx2()); }
}  // namespace avx2

namespace avx512 {
bool applies(const KdaDecodeArgs& args) { return state_is_f32(args) && cpu_features().avx512; }
Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args) { return decode(ctx, args, kda_steps_avx512()); }
}  // namespace avx512

}  // namespace lathe
