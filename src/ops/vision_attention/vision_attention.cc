#include "ops/vision_attention/vision_attention.h"

#include "ops/vision_attention/variants.h"

namespace lathe {

namespace {

Status check(const VisionAttentionArgs& args) {
  const int64_t patches = args.qkv.rows, width = int64_t{args.heads} * args.dim;
  for (const Rows* r : {&args.qkv, &args.out})
    if (r->dtype != DType::kF32 && r->dtype != DType::kBF16)
      return invalid("rows must be f32 or bf16, not {}", dtype_name(r->dtype));
  if (args.heads < 1 || args.dim < 4 || args.dim % 4)
    return invalid("{} heads of {}: the axial rotation wants a multiple of 4", args.heads, args.dim);
  if (args.qkv.width != 3 * width || args.out.width != width || args.out.rows != patches)
    return invalid("qkv is [{}, {}] and out [{}, {}]; {} heads of {} want [n, {}] and [n, {}]", patches, args.qkv.width,
                   args.out.rows, args.out.width, args.heads, args.dim, 3 * width, width);
  if (args.q_norm.count != args.dim || args.k_norm.count != args.dim)
    return invalid("head norms have {} and {} values for heads of {}", args.q_norm.count, args.k_norm.count, args.dim);
  if (args.row.count != patches || args.col.count != patches)
    return invalid("{} rows and {} columns for {} patches", args.row.count, args.col.count, patches);
  if (args.segment_start.count < 1) return invalid("segment_start needs at least the end of the last segment");
  return Status::ok();
}

constexpr Variant<VisionAttentionArgs> kVariants[] = {
    {"avx512", avx512::vision_attention_applies, avx512::vision_attention},
    // Behind it: on the CI machine a product of bf16 pairs takes four times as long as one of floats.
    {"avx512_bf16", avx512::vision_attention_bf16_applies, avx512::vision_attention_bf16},
    {"avx2", avx2::vision_attention_applies, avx2::vision_attention},
    {"portable", always, portable::vision_attention},
    {"reference", always, reference::vision_attention},
#ifdef LATHE_CUDA
    {"cuda", cuda::vision_attention_applies, cuda::vision_attention, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<VisionAttentionArgs> kVisionAttention{"vision_attention", kVariants, check};

Status vision_attention(OpContext& ctx, const VisionAttentionArgs& args) { return run(ctx, kVisionAttention, args); }

}  // namespace lathe
