#include "ops/hc_boundary/hc_boundary.h"

#include "ops/hc_boundary/variants.h"

namespace lathe {

namespace {

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }

Status check(const HcBoundaryArgs& a) {
  const int64_t rows = a.u.rows, hidden = a.u.width, copies = a.copies, n = 2 * copies + copies * copies;
  if (copies < 1 || a.sinkhorn_iters < 1)
    return invalid("copies ({}) and sinkhorn_iters ({}) must be positive", a.copies, a.sinkhorn_iters);
  if (a.streams.rows != rows || a.streams.width != copies * hidden)
    return invalid("streams are [{}, {}], not [{}, {}]", a.streams.rows, a.streams.width, rows, copies * hidden);
  if (a.streams_out.rows != rows || a.streams_out.width != copies * hidden || a.streams_out.dtype != a.streams.dtype)
    return invalid("streams_out must have the shape and dtype of streams");
  if (!is_float(a.streams.dtype) || !is_float(a.u.dtype)) return invalid("streams and u must be f32 or bf16");
  if (!a.y.empty()) {
    if (a.y.rows != rows || a.y.width != hidden || !is_float(a.y.dtype))
      return invalid("y must be f32 or bf16, [{}, {}]", rows, hidden);
    if (a.post.count < rows * copies || a.comb.count < rows * copies * copies)
      return invalid("post and comb need {} and {} values, not {} and {}", rows * copies, rows * copies * copies,
                     a.post.count, a.comb.count);
  }
  if (a.fn.out != n || a.fn.in != copies * hidden || !is_float(a.fn.dtype))
    return invalid("fn must be f32 or bf16, [{}, {}], not [{}, {}]", n, copies * hidden, a.fn.out, a.fn.in);
  if (a.base.count != n || a.scale.count != 3 || a.norm_weight.count != hidden)
    return invalid("base, scale and norm_weight need {}, 3 and {} values, not {}, {} and {}", n, hidden, a.base.count,
                   a.scale.count, a.norm_weight.count);
  if (a.post_out.count < rows * copies || a.comb_out.count < rows * copies * copies)
    return invalid("post_out or comb_out is too small");
  return Status::ok();
}

constexpr Variant<HcBoundaryArgs> kVariants[] = {
    {"avx512", avx512::hc_boundary_applies, avx512::hc_boundary},
    {"avx2", avx2::hc_boundary_applies, avx2::hc_boundary},
    {"portable", portable::hc_boundary_applies, portable::hc_boundary},
    {"reference", always, reference::hc_boundary},
#ifdef LATHE_CUDA
    {"cuda", cuda::hc_boundary_applies, cuda::hc_boundary, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<HcBoundaryArgs> kHcBoundary{"hc_boundary", kVariants, check};

Status hc_boundary(OpContext& ctx, const HcBoundaryArgs& args) { return run(ctx, kHcBoundary, args); }

}  // namespace lathe
