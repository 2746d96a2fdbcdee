#include "ops/lanes_portable.h"
// After the lanes it is written over.
#include "ops/index_select/blocks.h"
#include "ops/index_select/variants.h"

namespace lathe::portable {

bool index_select_applies(const IndexSelectArgs&) { return true; }

Status index_select(OpContext& ctx, const IndexSelectArgs& args) { return Indexer<PlainPicker>(ctx, args).run(); }

}  // namespace lathe::portable
