#include "ops/hc_head/hc_head.h"

#include "ops/hc_head/variants.h"

namespace lathe {

namespace {

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }

Status check(const HcHeadArgs& a) {
  const int64_t rows = a.h.rows, hidden = a.h.width, copies = a.copies;
  if (copies < 1) return invalid("copies ({}) must be positive", a.copies);
  if (a.streams.rows != rows || a.streams.width != copies * hidden)
    return invalid("streams are [{}, {}], not [{}, {}]", a.streams.rows, a.streams.width, rows, copies * hidden);
  if (a.streams_out.rows != rows || a.streams_out.width != copies * hidden || a.streams_out.dtype != a.streams.dtype)
    return invalid("streams_out must have the shape and dtype of streams");
  if (a.y.rows != rows || a.y.width != hidden)
    return invalid("y is [{}, {}], not [{}, {}]", a.y.rows, a.y.width, rows, hidden);
  if (!is_float(a.streams.dtype) || !is_float(a.y.dtype) || !is_float(a.h.dtype))
    return invalid("streams, y and h must be f32 or bf16");
  if (a.post.count < rows * copies || a.comb.count < rows * copies * copies)
    return invalid("post and comb need {} and {} values, not {} and {}", rows * copies, rows * copies * copies,
                   a.post.count, a.comb.count);
  if (a.norm_weight.count != hidden) return invalid("norm_weight needs {} values, not {}", hidden, a.norm_weight.count);
  return Status::ok();
}

constexpr Variant<HcHeadArgs> kVariants[] = {
    {"avx512", avx512::hc_head_applies, avx512::hc_head},
    {"avx2", avx2::hc_head_applies, avx2::hc_head},
    {"portable", portable::hc_head_applies, portable::hc_head},
    {"reference", always, reference::hc_head},
#ifdef LATHE_CUDA
    {"cuda", cuda::hc_head_applies, cuda::hc_head, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<HcHeadArgs> kHcHead{"hc_head", kVariants, check};

Status hc_head(OpContext& ctx, const HcHeadArgs& args) { return run(ctx, kHcHead, args); }

}  // namespace lathe
