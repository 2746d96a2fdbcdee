#include "ops/add/variants.h"
#include "ops/cuda_kernel.cuh"

namespace lathe::cuda {

namespace {

__global__ void add_kernel(Rows a, Rows b, Rows y) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= y.rows * y.width) return;
  const int64_t row = at / y.width, i = at % y.width;
  store(y, row, i, load(a, row, i) + load(b, row, i));
}

}  // namespace

Status add(OpContext& ctx, const AddArgs& args) {
  const int64_t values = args.y.rows * args.y.width;
  if (values == 0) return Status::ok();
  add_kernel<<<static_cast<unsigned>(ceil_div(values, 256)), 256, 0, stream_of(ctx)>>>(args.a, args.b, args.y);
  return launched("add");
}

}  // namespace lathe::cuda
