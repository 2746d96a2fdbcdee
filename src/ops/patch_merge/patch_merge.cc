#include "ops/patch_merge/patch_merge.h"

#include "ops/patch_merge/variants.h"

namespace lathe {

namespace {

Status check(const PatchMergeArgs& args) {
  if (args.members < 1) return invalid("members is {}, must be 1 or more", args.members);
  if (args.x.dtype != args.out.dtype || (args.x.dtype != DType::kF32 && args.x.dtype != DType::kBF16))
    return invalid("x and out must be of one dtype, f32 or bf16; got {} and {}", dtype_name(args.x.dtype),
                   dtype_name(args.out.dtype));
  if (args.x.rows != args.out.rows * args.members || args.out.width != args.x.width * args.members)
    return invalid("x [{}, {}] in blocks of {} doesn't make out [{}, {}]", args.x.rows, args.x.width, args.members,
                   args.out.rows, args.out.width);
  return Status::ok();
}

constexpr Variant<PatchMergeArgs> kVariants[] = {
    {"portable", always, portable::patch_merge},
    {"reference", always, reference::patch_merge},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::patch_merge, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<PatchMergeArgs> kPatchMerge{"patch_merge", kVariants, check};

Status patch_merge(OpContext& ctx, const PatchMergeArgs& args) { return run(ctx, kPatchMerge, args); }

}  // namespace lathe
