#include "ops/linear/products.cuh"
#include "ops/linear/shared_rows.cuh"
#include "ops/linear/variants.h"

namespace lathe::cuda {

namespace {

// A block a row; fp32 throughout, as the contract has it.
__global__ void quantise_kernel(Rows x, Rows to) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x;
  const float given = x.scale ? x.scale[row] : 1;
  auto value = [&](int64_t i) { return load(x, row, i) * given; };
  float largest = 0;
  int finite = 1;
  for (int64_t i = threadIdx.x; i < x.width; i += blockDim.x) {
    const float v = value(i);
    finite &= isfinite(v);
    largest = fmaxf(largest, fabsf(v));
  }
  largest = block_reduce(largest, space, [](float a, float b) { return fmaxf(a, b); });
  finite = block_reduce(finite, reinterpret_cast<int*>(space), [](int a, int b) { return a & b; });
  const Step step = quantising_step(largest, finite, to.dtype);
  if (threadIdx.x == 0) to.scale[row] = step.scale;
  for (int64_t i = threadIdx.x; i < x.width; i += blockDim.x) store_step(to, row, i, value(i), step);
}

}  // namespace

Status quantise_rows(OpContext& ctx, const Rows& x, DType dtype, Rows* quantised) {
  *quantised = ctx.scratch->rows(x.rows, ceil_div(x.width, 16) * 16, dtype);
  quantised->width = x.width;
  if (x.rows == 0) return Status::ok();
  quantise_kernel<<<static_cast<unsigned>(x.rows), 256, 0, stream_of(ctx)>>>(x, *quantised);
  return launched("quantising rows");
}

Status multiply_shared_rows(OpContext& ctx, const SharedRows& s, bool few_rows_only) {
  if (s.rows == 0) return Status::ok();
  bool done[Lines::kMost] = {};
  Rows quantised[2];  // for int8, for e4m3
  for (int i = 0; i < s.products; ++i) {
    if (done[i] || s.product[i].w.out == 0) continue;
    const Weight& like = s.product[i].w;
    Sides sides{.x = s.x,
                .y_stride = s.product[i].y.stride,
                .y_dtype = s.product[i].y.dtype,
                .round_to_bf16 = s.round_to_bf16};
    if (like.is_w8a8() && s.x.dtype != like.dtype) {
      Rows& rows = quantised[like.dtype == DType::kE4M3];
      if (!rows.data) LATHE_RETURN_IF_ERROR(quantise_rows(ctx, s.x, like.dtype, &rows));
      sides.x = rows;
    }
    Form form{};
    auto takes = [&](const SharedProduct& p, Form* f) {
      return tensor_form(sides.x, p.w, s.sharp && p.y.dtype == DType::kF32, f);
    };
    const bool tensor = takes(s.product[i], &form);
    // With it go all that the same kernel takes from the same rows to rows alike.
    Lines lines;
    lines.list = s.list, lines.rows = s.rows;
    for (int j = i; j < s.products; ++j) {
      const SharedProduct& p = s.product[j];
      Form its{};
      if (done[j] || p.w.dtype != like.dtype || p.w.is_w8a8() != like.is_w8a8() || p.y.dtype != sides.y_dtype ||
          p.y.stride != sides.y_stride || takes(p, &its) != tensor || its != form)
        continue;
      done[j] = true;
      if (p.w.out) lines.add(p.w, p.bias.empty() ? nullptr : p.bias.data, p.y.data);
    }
    const Plan plan = s.rows <= 8                      ? Plan::kStream8
                      : s.rows <= 16                   ? Plan::kStream16
                      : s.rows <= 32                   ? Plan::kStream32
                      : s.rows <= 64 || few_rows_only ? Plan::kStream64
                                                       : Plan::kTile;
    auto grid = [&](Lines& l, int outs, int rows) {
      return dim3(l.cut(outs), static_cast<unsigned>(ceil_div(s.rows, rows)));
    };
    LATHE_RETURN_IF_ERROR(launch_products(ctx, lines, sides, like, tensor, form, plan, grid));
  }
  return Status::ok();
}

namespace {

Status multiply(OpContext& ctx, const LinearArgs& args, bool few_rows_only) {
  ArenaScope scope(*ctx.scratch);
  SharedRows s{.x = args.x, .rows = args.x.rows, .products = args.products, .sharp = true};
  for (int i = 0; i < args.products; ++i)
    s.product[i] = {args.product[i].w, args.product[i].bias, args.product[i].y};
  return multiply_shared_rows(ctx, s, few_rows_only);
}

}  // namespace

Status linear(OpContext& ctx, const LinearArgs& args) { return multiply(ctx, args, false); }
Status linear_one_order(OpContext& ctx, const LinearArgs& args) { return multiply(ctx, args, true); }

}  // namespace lathe::cuda
