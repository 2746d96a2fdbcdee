#include "base/cpu_features.h"
#include "ops/lanes_avx2.h"
// After the lanes it is written over.
#include "ops/index_select/blocks.h"
#include "ops/index_select/variants.h"

namespace lathe::avx2 {

bool index_select_applies(const IndexSelectArgs&) { return cpu_features().avx2; }

Status index_select(OpContext& ctx, const IndexSelectArgs& args) { return Indexer<PlainPicker>(ctx, args).run(); }

}  // namespace lathe::avx2
