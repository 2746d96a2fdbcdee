#include <vector>

#include "base/cpu_features.h"
#include "ops/kda_replay/replay_head.h"
#include "ops/kda_replay/variants.h"

namespace lathe {

namespace {

Status replay(OpContext& ctx, const KdaReplayArgs& args, const KdaSteps& steps) {
  const int heads = args.layer.heads;
  ArenaScope scope(*ctx.scratch);
  std::vector<KdaReplayHead> workers;
  workers.reserve(ctx.pool->threads());
  for (int i = 0; i < ctx.pool->threads(); ++i) workers.emplace_back(steps, args, *ctx.scratch);
  ctx.pool->run(args.slot.count * heads, [&](int64_t task, int worker) {
    const FlushTinyNumbers flush;
    const int64_t sequence = task / heads, slot = args.slot[sequence];
    const int head = static_cast<int>(task % heads);
    if (args.flush) {
      if (slot >= 0) workers[worker].flush(slot, head);
      return;
    }
    const KdaRun run{slot, args.runs.start[sequence], args.runs.start[sequence + 1], args.runs.past[sequence]};
    if (slot < 0)
      zero_kda_rows(args.y.columns(int64_t{head} * args.layer.v, args.layer.v), run.begin, run.end);
    else if (run.begin < run.end)
      workers[worker].step(head, run);
  });
  return Status::ok();
}

}  // namespace

namespace portable {
bool applies(const KdaReplayArgs& args) { return args.memory.state.dtype == DType::kF32; }
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args) { return replay(ctx, args, kda_steps_portable()); }
}  // namespace portable

namespace avx2 {
bool applies(const KdaReplayArgs& args) { return portable::applies(args) && cpu_features().avx2; }
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args) { return replay(ctx, args, kda_steps_avx2()); }
}  // namespace avx2

namespace avx512 {
bool applies(const KdaReplayArgs& args) { return portable::applies(args) && cpu_features().avx512; }
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args) { return replay(ctx, args, kda_steps_avx512()); }
}  // namespace avx512

}  // namespace lathe
