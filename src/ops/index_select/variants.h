#pragma once

#include "ops/index_select/index_select.h"

namespace lathe {
namespace reference {
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}
}  // namespace lathe
