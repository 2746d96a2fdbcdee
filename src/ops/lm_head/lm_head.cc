#include "ops/lm_head/lm_head.h"

#include "ops/linear/operands.h"
#include "ops/lm_head/variants.h"

namespace lathe {

namespace {

Status check(const LmHeadArgs& args) {
  LATHE_RETURN_IF_ERROR(check_result(args.hidden, args.hidden.rows, args.hidden.width, "hidden"));
  LATHE_RETURN_IF_ERROR(check_weight(args.w, args.hidden.width, "w"));
  LATHE_RETURN_IF_ERROR(check_result(args.logits, args.row.count, args.w.out, "logits"));
  if (args.logits.dtype != DType::kF32) return invalid("logits must be f32, not {}", dtype_name(args.logits.dtype));
  return Status::ok();
}

constexpr Variant<LmHeadArgs> kVariants[] = {
    {"avx512", avx512::lm_head_applies, avx512::lm_head},
    {"avx2", avx2::lm_head_applies, avx2::lm_head},
    {"portable", always, portable::lm_head},
    {"reference", always, reference::lm_head},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::lm_head, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<LmHeadArgs> kLmHead{"lm_head", kVariants, check};

Status lm_head(OpContext& ctx, const LmHeadArgs& args) { return run(ctx, kLmHead, args); }

}  // namespace lathe
