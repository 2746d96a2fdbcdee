#pragma once

#include "ops/index_select/index_select.h"

namespace lathe {
namespace reference {
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}
namespace portable {
bool index_select_applies(const IndexSelectArgs& args);
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}  // namespace portable
namespace avx2 {
bool index_select_applies(const IndexSelectArgs& args);
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}  // namespace avx2
namespace avx512 {
bool index_select_applies(const IndexSelectArgs& args);
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}  // namespace avx512
namespace cuda {
bool index_select_applies(const IndexSelectArgs& args);
Status index_select(OpContext& ctx, const IndexSelectArgs& args);
}  // namespace cuda
}  // namespace lathe
