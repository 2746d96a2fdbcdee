#include "ops/cuda_kernel.cuh"
#include "ops/patch_merge/variants.h"

namespace lathe::cuda {

namespace {

// Bits are copied as integers: a NaN keeps its payload.
template <class Bits>
__global__ void merge_kernel(PatchMergeArgs args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.out.rows * args.out.width) return;
  const int64_t block = at / args.out.width, i = at % args.out.width;
  const int64_t channel = i / args.members, member = i % args.members;
  static_cast<Bits*>(args.out.data)[block * args.out.stride + i] =
      static_cast<const Bits*>(args.x.data)[(block * args.members + member) * args.x.stride + channel];
}

}  // namespace

Status patch_merge(OpContext& ctx, const PatchMergeArgs& args) {
  const int64_t values = args.out.rows * args.out.width;
  if (values == 0) return Status::ok();
  const auto blocks = static_cast<unsigned>(ceil_div(values, 256));
  if (args.x.dtype == DType::kF32)
    merge_kernel<uint32_t><<<blocks, 256, 0, stream_of(ctx)>>>(args);
  else
    merge_kernel<uint16_t><<<blocks, 256, 0, stream_of(ctx)>>>(args);
  return launched("patch_merge");
}

}  // namespace lathe::cuda
