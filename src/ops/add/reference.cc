#include "ops/add/variants.h"
#include "ops/element.h"

namespace lathe::reference {

Status add(OpContext&, const AddArgs& args) {
  for (int64_t r = 0; r < args.y.rows; ++r)
    for (int64_t i = 0; i < args.y.width; ++i) store(args.y, r, i, load(args.a, r, i) + load(args.b, r, i));
  return Status::ok();
}

}  // namespace lathe::reference
