#pragma once

#include "ops/kda_replay/kda_replay.h"

namespace lathe {
namespace reference {
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}
namespace portable {
bool applies(const KdaReplayArgs& args);
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}  // namespace portable
namespace avx2 {
bool applies(const KdaReplayArgs& args);
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}  // namespace avx2
namespace avx512 {
bool applies(const KdaReplayArgs& args);
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}  // namespace avx512
namespace cuda {
bool kda_replay_predecayed_applies(const KdaReplayArgs& args);
Status kda_replay_predecayed(OpContext& ctx, const KdaReplayArgs& args);
bool kda_replay_applies(const KdaReplayArgs& args);
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}  // namespace cuda
}  // namespace lathe
