#include "ops/mlp/middle.cuh"
#include "ops/mlp/variants.h"

namespace lathe::cuda {

namespace {

// Rows at once, so that what lies between the products stays within scratch.
constexpr int64_t kMostRows = 4096;

__device__ float swiglu(float g, float u, float limit) {
  if (limit > 0) {  // a NaN stays one
    if (g > limit) g = limit;
    if (u > limit) u = limit;
    if (u < -limit) u = -limit;
  }
  return g / (1 + expf(-g)) * u;
}

// A block a row.
__global__ void middle_kernel(Rows gate_up, float limit, Rows middle) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x, inner = middle.width;
  const float* g = static_cast<const float*>(gate_up.data) + row * gate_up.stride;
  if (!middle.scale) {
    for (int64_t i = threadIdx.x; i < inner; i += blockDim.x) store(middle, row, i, swiglu(g[i], g[inner + i], limit));
    return;
  }
  float largest = 0;
  int finite = 1;
  for (int64_t i = threadIdx.x; i < inner; i += blockDim.x) {
    const float v = swiglu(g[i], g[inner + i], limit);
    finite &= isfinite(v);
    largest = fmaxf(largest, fabsf(v));
  }
  largest = block_reduce(largest, space, [](float a, float b) { return fmaxf(a, b); });
  finite = block_reduce(finite, reinterpret_cast<int*>(space), [](int a, int b) { return a & b; });
  const Step step = quantising_step(largest, finite, middle.dtype);
  if (threadIdx.x == 0) middle.scale[row] = step.scale;
  for (int64_t i = threadIdx.x; i < inner; i += blockDim.x)
    store_step(middle, row, i, swiglu(g[i], g[inner + i], limit), step);
}

Status mlp_part(OpContext& ctx, const MlpArgs& args, int64_t begin, int64_t count) {
  ArenaScope scope(*ctx.scratch);
  const MlpWeights& w = args.w;
  const int64_t inner = w.gate.out;
  const Rows gate_up = ctx.scratch->rows(count, 2 * inner, DType::kF32);
  SharedRows first{.x = args.x.slice(begin, count), .rows = count, .products = 2};
  first.product[0] = {w.gate, w.gate_bias, gate_up.columns(0, inner)};
  first.product[1] = {w.up, w.up_bias, gate_up.columns(inner, inner)};
  LATHE_RETURN_IF_ERROR(multiply_shared_rows(ctx, first, args.x.rows <= 64));
  const Rows middle = middle_rows(ctx, count, inner, args.x.dtype, w.down);
  LATHE_RETURN_IF_ERROR(make_middle(ctx, gate_up, args.limit, middle));
  SharedRows second{.x = middle, .rows = count, .products = 1};
  second.product[0] = {w.down, w.down_bias, args.y.slice(begin, count)};
  return multiply_shared_rows(ctx, second, args.x.rows <= 64);
}

}  // namespace

Rows middle_rows(OpContext& ctx, int64_t rows, int64_t inner, DType x, const Weight& down) {
  Rows middle = ctx.scratch->rows(rows, ceil_div(inner, 16) * 16, down.is_w8a8() ? down.dtype : x);
  middle.width = inner;
  return middle;
}

Status make_middle(OpContext& ctx, const Rows& gate_up, float limit, const Rows& middle) {
  if (middle.rows == 0) return Status::ok();
  middle_kernel<<<static_cast<unsigned>(middle.rows), 256, 0, stream_of(ctx)>>>(gate_up, limit, middle);
  return launched("swiglu");
}

Status mlp(OpContext& ctx, const MlpArgs& args) {
  for (int64_t begin = 0; begin < args.x.rows; begin += kMostRows)
    LATHE_RETURN_IF_ERROR(mlp_part(ctx, args, begin, std::min(kMostRows, args.x.rows - begin)));
  return Status::ok();
}

}  // namespace lathe::cuda
