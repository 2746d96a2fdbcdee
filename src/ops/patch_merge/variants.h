#pragma once

#include "ops/patch_merge/patch_merge.h"

namespace lathe {
namespace reference {
Status patch_merge(OpContext& ctx, const PatchMergeArgs& args);
}
namespace portable {
Status patch_merge(OpContext& ctx, const PatchMergeArgs& args);
}
namespace cuda {
Status patch_merge(OpContext& ctx, const PatchMergeArgs& args);
}
}  // namespace lathe
