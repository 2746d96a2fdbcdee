#pragma once

#include "ops/sparse_mla/sparse_mla.h"

namespace lathe {
namespace reference {
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
}
}  // namespace lathe
