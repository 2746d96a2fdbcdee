#include "ops/add/variants.h"
#include "ops/row_floats.h"

namespace lathe::portable {

Status add(OpContext& ctx, const AddArgs& args) {
  const int64_t width = args.y.width;
  ctx.pool->run(args.y.rows, [&](int64_t r, int) {
    std::vector<float> a(width), b(width);
    read_row(args.a, r, a.data());
    read_row(args.b, r, b.data());
    for (int64_t i = 0; i < width; ++i) a[i] += b[i];
    write_row(args.y, r, a.data());
  });
  return Status::ok();
}

}  // namespace lathe::portable
