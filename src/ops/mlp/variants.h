#pragma once

#include "ops/mlp/mlp.h"

namespace lathe {
Status check_mlp_weights(const MlpWeights& w, int64_t hidden, int64_t out, const char* name);

namespace reference {
Status mlp(OpContext& ctx, const MlpArgs& args);
}
namespace portable {
Status mlp(OpContext& ctx, const MlpArgs& args);
}
namespace avx2 {
bool mlp_applies(const MlpArgs& args);
Status mlp(OpContext& ctx, const MlpArgs& args);
}  // namespace avx2
namespace avx512 {
bool mlp_applies(const MlpArgs& args);
Status mlp(OpContext& ctx, const MlpArgs& args);
}  // namespace avx512
namespace cuda {
Status mlp(OpContext& ctx, const MlpArgs& args);
}
}  // namespace lathe
