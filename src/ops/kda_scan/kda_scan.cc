#include "ops/kda_scan/kda_scan.h"

#include "ops/kda_scan/variants.h"

namespace lathe {

namespace {

Status check(const KdaScanArgs& args) {
  LATHE_RETURN_IF_ERROR(check_kda(args.in, args.layer, args.memory, args.y, args.in.qkv.rows));
  const int64_t sequences = args.runs.sequences();
  if (args.runs.start.count != sequences + 1 || args.slot.count != sequences || args.before.count != sequences)
    return invalid("{} sequences need {} starts, {} slots and positions before; got {}, {}, {}", sequences,
                   sequences + 1, sequences, args.runs.start.count, args.slot.count, args.before.count);
  if (args.segments < 1) return invalid("{} segments", args.segments);
  return Status::ok();
}

constexpr Variant<KdaScanArgs> kVariants[] = {
    {"increment", cpu::applies, cpu::increment},
    {"increment_tf32", cpu::narrow_rows, cpu::increment_tf32},
    {"product_tf32", cpu::narrow_rows, cpu::product_tf32},
    {"reference", always, reference::kda_scan},
#ifdef LATHE_CUDA
    {"cuda", cuda::kda_scan_applies, cuda::kda_scan, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<KdaScanArgs> kKdaScan{"kda_scan", kVariants, check};

Status kda_scan(OpContext& ctx, const KdaScanArgs& args) { return run(ctx, kKdaScan, args); }

}  // namespace lathe
