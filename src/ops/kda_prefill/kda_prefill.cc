#include "ops/kda_prefill/kda_prefill.h"

#include "ops/kda_prefill/variants.h"

namespace lathe {

namespace {

Status check(const KdaPrefillArgs& args) {
  LATHE_RETURN_IF_ERROR(check_kda(args.in, args.layer, args.memory, args.y, args.in.qkv.rows));
  const int64_t sequences = args.runs.sequences();
  if (args.runs.start.count != sequences + 1 || args.slot.count != sequences)
    return invalid("{} sequences need {} starts and {} slots; got {} and {}", sequences, sequences + 1, sequences,
                   args.runs.start.count, args.slot.count);
  if (args.checkpoint_row.count != args.checkpoint_slot.count)
    return invalid("{} checkpoint rows, but {} slots", args.checkpoint_row.count, args.checkpoint_slot.count);
  return Status::ok();
}

constexpr Variant<KdaPrefillArgs> kVariants[] = {
    {"chunked", portable::applies, best::chunked},
    {"sequential", portable::applies, best::sequential},
    {"chunked_avx2", avx2::applies, avx2::chunked},
    {"chunked_portable", portable::applies, portable::chunked},
    {"reference", always, reference::kda_prefill},
#ifdef LATHE_CUDA  // the faster one by its name, until verify has judged it through this door on a card
    {"cuda", cuda::kda_prefill_applies, cuda::kda_prefill, true, DeviceKind::kCuda},
    {"chunked_sm90", cuda::kda_prefill_chunked_applies, cuda::kda_prefill_chunked, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<KdaPrefillArgs> kKdaPrefill{"kda_prefill", kVariants, check};

Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& args) { return run(ctx, kKdaPrefill, args); }

}  // namespace lathe
