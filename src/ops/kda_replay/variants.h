#pragma once

#include "ops/kda_replay/kda_replay.h"

namespace lathe {
namespace reference {
Status kda_replay(OpContext& ctx, const KdaReplayArgs& args);
}
}  // namespace lathe
