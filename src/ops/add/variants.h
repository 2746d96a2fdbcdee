#pragma once

#include "ops/add/add.h"

namespace lathe {
namespace reference {
Status add(OpContext& ctx, const AddArgs& args);
}
namespace portable {
Status add(OpContext& ctx, const AddArgs& args);
}
namespace cuda {
Status add(OpContext& ctx, const AddArgs& args);
}
}  // namespace lathe
