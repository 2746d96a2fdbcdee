#include "ops/norm/norm.h"

#include "ops/norm/variants.h"

namespace lathe {

namespace {

Status check(const NormArgs& args) {
  for (const Rows* r : {&args.x, &args.y})
    if (r->dtype != DType::kF32 && r->dtype != DType::kBF16)
      return invalid("rows must be f32 or bf16, not {}", dtype_name(r->dtype));
  if (args.x.rows != args.y.rows || args.x.width != args.y.width)
    return invalid("x [{}, {}] and y [{}, {}] must have one shape", args.x.rows, args.x.width, args.y.rows,
                   args.y.width);
  if (args.weight.count != args.x.width)
    return invalid("weight has {} values for rows of {}", args.weight.count, args.x.width);
  if (args.kind == NormKind::kLayer && args.bias.count != args.x.width)
    return invalid("bias has {} values for rows of {}", args.bias.count, args.x.width);
  if (args.kind == NormKind::kRms && !args.bias.empty()) return invalid("an RMS norm has no bias");
  return Status::ok();
}

constexpr Variant<NormArgs> kVariants[] = {
    {"avx512", avx512::norm_applies, avx512::norm},
    {"avx2", avx2::norm_applies, avx2::norm},
    {"portable", always, portable::norm},
    {"reference", always, reference::norm},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::norm, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<NormArgs> kNorm{"norm", kVariants, check};

Status norm(OpContext& ctx, const NormArgs& args) { return run(ctx, kNorm, args); }

}  // namespace lathe
