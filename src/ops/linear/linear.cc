#include "ops/linear/linear.h"

#include "ops/linear/operands.h"
#include "ops/linear/variants.h"

namespace lathe {

namespace {

Status check(const LinearArgs& args) {
  LATHE_RETURN_IF_ERROR(check_activations(args.x, "x"));
  if (args.products < 0 || args.products > LinearArgs::kMaxProducts)
    return invalid("{} products; 0 to {} are possible", args.products, LinearArgs::kMaxProducts);
  for (int i = 0; i < args.products; ++i) {
    const Product& p = args.product[i];
    LATHE_RETURN_IF_ERROR(check_weight(p.w, args.x.width, "w"));
    LATHE_RETURN_IF_ERROR(check_bias(p.bias, p.w.out, "bias"));
    LATHE_RETURN_IF_ERROR(check_result(p.y, args.x.rows, p.w.out, "y"));
  }
  return Status::ok();
}

constexpr Variant<LinearArgs> kVariants[] = {
    {"avx512", avx512::linear_applies, avx512::linear},
    {"avx2", avx2::linear_applies, avx2::linear},
    {"portable", always, portable::linear},
    {"reference", always, reference::linear},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::linear, false, DeviceKind::kCuda},
    // Any number of rows in the order of few.
    {"cuda_one_order", always, cuda::linear_one_order, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<LinearArgs> kLinear{"linear", kVariants, check};

Status linear(OpContext& ctx, const LinearArgs& args) { return run(ctx, kLinear, args); }

}  // namespace lathe
