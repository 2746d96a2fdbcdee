#include "ops/cuda_kernel.cuh"
#include "ops/norm/variants.h"

namespace lathe::cuda {

namespace {

__device__ float gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678118654752f)); }

// A block a row, which is read again from the caches.
__global__ void norm_kernel(NormArgs args) {
  __shared__ float space[32];
  const int64_t row = blockIdx.x, width = args.x.width;
  const bool layer = args.kind == NormKind::kLayer;
  float center = 0;
  if (layer) {
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) center += load(args.x, row, i);
    center = block_sum(center, space) / static_cast<float>(width);
  }
  float square = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = load(args.x, row, i) - center;
    square += x * x;
  }
  const float scale = 1 / sqrtf(block_sum(square, space) / static_cast<float>(width) + args.eps);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float normed = (load(args.x, row, i) - center) * scale;
    const float y = layer ? args.weight[i] * normed + args.bias[i] : args.weight[i] * rounded(normed, args.y.dtype);
    store(args.y, row, i, args.gelu ? gelu(y) : y);
  }
}

}  // namespace

Status norm(OpContext& ctx, const NormArgs& args) {
  if (args.x.rows == 0) return Status::ok();
  const int threads = args.x.width <= 128 ? 32 : args.x.width <= 2048 ? 128 : 256;
  norm_kernel<<<static_cast<unsigned>(args.x.rows), threads, 0, stream_of(ctx)>>>(args);
  return launched("norm");
}

}  // namespace lathe::cuda
