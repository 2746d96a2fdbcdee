#include "ops/cuda_kernel.cuh"
#include "ops/hc_boundary/streams.cuh"
#include "ops/hc_head/variants.h"

namespace lathe::cuda {

namespace {

// A block a row; the mean stays in shared memory until its norm is known.
__global__ void hc_head_kernel(HcHeadArgs a) {
  extern __shared__ float mean[];  // [hidden]
  __shared__ float space[32];
  const int64_t row = blockIdx.x, hidden = a.h.width;
  const StreamMix mix{a.streams, a.y, a.post, a.comb, a.copies};
  float square = 0;
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) {
    float x[kMostCopies], v = 0;
    mix(row, i, hidden, x);
    for (int s = 0; s < a.copies; ++s) {
      x[s] = rounded(x[s], a.streams_out.dtype);
      store(a.streams_out, row, s * hidden + i, x[s]);
      v += x[s];
    }
    mean[i] = v /= static_cast<float>(a.copies);
    square += v * v;
  }
  const float scale = 1 / sqrtf(block_sum(square, space) / static_cast<float>(hidden) + a.norm_eps);
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) store(a.h, row, i, a.norm_weight[i] * mean[i] * scale);
}

}  // namespace

bool hc_head_applies(const HcHeadArgs& a) { return a.copies <= kMostCopies && a.h.width * 4 <= kMostShared - 1024; }

Status hc_head(OpContext& ctx, const HcHeadArgs& a) {
  if (a.h.rows == 0) return Status::ok();
  const int64_t shared = a.h.width * 4;
  LATHE_RETURN_IF_ERROR(allow_shared(hc_head_kernel, shared));
  hc_head_kernel<<<static_cast<unsigned>(a.h.rows), 256, shared, stream_of(ctx)>>>(a);
  return launched("hc_head");
}

}  // namespace lathe::cuda
