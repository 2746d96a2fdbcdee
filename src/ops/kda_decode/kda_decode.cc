#include "ops/kda_decode/kda_decode.h"

#include "ops/kda_decode/variants.h"

namespace lathe {

namespace {

Status check(const KdaDecodeArgs& args) {
  LATHE_RETURN_IF_ERROR(check_kda(args.in, args.layer, args.memory, args.y, args.in.qkv.rows));
  if (args.past.count != args.in.qkv.rows || args.slot.count != args.in.qkv.rows)
    return invalid("{} rows, but {} positions and {} slots", args.in.qkv.rows, args.past.count, args.slot.count);
  return Status::ok();
}

constexpr Variant<KdaDecodeArgs> kVariants[] = {
    {"avx512", avx512::applies, avx512::kda_decode},
    {"avx2", avx2::applies, avx2::kda_decode},
    {"portable", portable::applies, portable::kda_decode},
    {"reference", always, reference::kda_decode},
#ifdef LATHE_CUDA  // the faster one by its name, until verify has judged it through this door on a card
    {"cuda", cuda::kda_decode_applies, cuda::kda_decode, true, DeviceKind::kCuda},
    {"fused", cuda::kda_decode_fused_applies, cuda::kda_decode_fused, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<KdaDecodeArgs> kKdaDecode{"kda_decode", kVariants, check};

Status kda_decode(OpContext& ctx, const KdaDecodeArgs& args) { return run(ctx, kKdaDecode, args); }

}  // namespace lathe
