#include "ops/moe/moe.h"

#include "ops/linear/operands.h"
#include "ops/mlp/variants.h"
#include "ops/moe/variants.h"

namespace lathe {

namespace {

Status check_routing(const MoeArgs& args) {
  if (args.expert_count < 1 || args.top_k < 1 || args.top_k > args.expert_count)
    return invalid("top_k {} of {} experts", args.top_k, args.expert_count);
  if (args.first_expert < 0 || args.first_expert + args.experts.count > args.expert_count)
    return invalid("experts [{}, {}) of {}", args.first_expert, args.first_expert + args.experts.count,
                   args.expert_count);
  if (args.groups < 1 || args.expert_count % args.groups != 0)
    return invalid("{} experts don't fall into {} groups", args.expert_count, args.groups);
  if (args.top_groups < 1 || args.top_groups > args.groups)
    return invalid("top_groups {} of {}", args.top_groups, args.groups);
  if (args.router.dtype != DType::kF32 && args.router.dtype != DType::kBF16)
    return invalid("router must be f32 or bf16, not {}", dtype_name(args.router.dtype));
  if (args.router.out != args.expert_count)
    return invalid("router has {} outputs for {} experts", args.router.out, args.expert_count);
  if (args.bias.count != args.expert_count)
    return invalid("bias has {} values for {} experts", args.bias.count, args.expert_count);
  return check_weight(args.router, args.x.width, "router");
}

// Rows of all experts' middles lie in one block, prepared as `down` wants them.
Status check_alike(Array<const MlpWeights> experts) {
  const auto form = [](const Weight& w) { return w.is_w8a8() ? "row-quantised" : w.scale ? "block-scaled" : "plain"; };
  for (int64_t e = 1; e < experts.count; ++e) {
    const Weight &first = experts[0].down, &down = experts[e].down;
    if (down.in != first.in)
      return invalid("expert {} has an inner width of {}, expert 0 of {}: all must share one", e, down.in, first.in);
    if (down.dtype != first.dtype || down.is_w8a8() != first.is_w8a8())
      return invalid("expert {}'s down is {} {}, expert 0's {} {}: all must share one form", e, form(down),
                     dtype_name(down.dtype), form(first), dtype_name(first.dtype));
  }
  return Status::ok();
}

Status check(const MoeArgs& args) {
  LATHE_RETURN_IF_ERROR(check_result(args.x, args.x.rows, args.x.width, "x"));
  LATHE_RETURN_IF_ERROR(check_result(args.y, args.x.rows, args.y.width, "y"));
  LATHE_RETURN_IF_ERROR(check_routing(args));
  for (int64_t e = 0; e < args.experts.count; ++e)
    LATHE_RETURN_IF_ERROR(check_mlp_weights(args.experts[e], args.x.width, args.y.width, "an expert"));
  LATHE_RETURN_IF_ERROR(check_alike(args.experts));
  if (args.shared.count > 1) return invalid("{} shared experts; 0 or 1 are possible", args.shared.count);
  for (int64_t e = 0; e < args.shared.count; ++e)
    LATHE_RETURN_IF_ERROR(check_mlp_weights(args.shared[e], args.x.width, args.y.width, "the shared expert"));
  const int64_t chosen = args.x.rows * args.top_k;
  for (int64_t count : {args.chosen.count, args.chosen_weight.count})
    if (count != 0 && count != chosen)
      return invalid("chosen has {} values for {} rows, top {}", count, args.x.rows, args.top_k);
  return Status::ok();
}

constexpr Variant<MoeArgs> kVariants[] = {
    {"avx512", avx512::moe_applies, avx512::moe},
    {"avx2", avx2::moe_applies, avx2::moe},
    {"portable", always, portable::moe},
    {"reference", always, reference::moe},
#ifdef LATHE_CUDA
    {"cuda", cuda::moe_applies, cuda::moe, false, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<MoeArgs> kMoe{"moe", kVariants, check};

Status moe(OpContext& ctx, const MoeArgs& args) { return run(ctx, kMoe, args); }

}  // namespace lathe
