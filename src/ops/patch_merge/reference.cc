#include "ops/element.h"
#include "ops/patch_merge/variants.h"

namespace lathe::reference {

Status patch_merge(OpContext&, const PatchMergeArgs& args) {
  for (int64_t b = 0; b < args.out.rows; ++b)
    for (int64_t c = 0; c < args.x.width; ++c)
      for (int m = 0; m < args.members; ++m)
        store(args.out, b, c * args.members + m, load(args.x, b * args.members + m, c));
  return Status::ok();
}

}  // namespace lathe::reference
