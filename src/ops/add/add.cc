#include "ops/add/add.h"

#include <cstring>

#include "ops/add/variants.h"

namespace lathe {

namespace {

Status check(const AddArgs& args) {
  for (const Rows* r : {&args.a, &args.b, &args.y}) {
    if (r->dtype != DType::kF32 && r->dtype != DType::kBF16)
      return invalid("rows must be f32 or bf16, not {}", dtype_name(r->dtype));
    if (r->rows != args.y.rows || r->width != args.y.width)
      return invalid("a, b and y must have one shape; got [{}, {}] and [{}, {}]", r->rows, r->width, args.y.rows,
                     args.y.width);
  }
  return Status::ok();
}

constexpr Variant<AddArgs> kVariants[] = {
    {"portable", always, portable::add},
    {"reference", always, reference::add},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::add, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<AddArgs> kAdd{"add", kVariants, check};

Status add(OpContext& ctx, const AddArgs& args) { return run(ctx, kAdd, args); }

}  // namespace lathe
