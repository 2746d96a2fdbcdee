#include "ops/cuda_kernel.cuh"
#include "ops/embedding/variants.h"

namespace lathe::cuda {

namespace {

// A block a row. What stands outside the table or the features, which the host's checks let nobody ask for, becomes NaN.
__global__ void embedding_kernel(EmbeddingArgs args) {
  const int64_t row = blockIdx.x, hidden = args.table.in;
  const int32_t token = args.token[row], feature = args.feature.empty() ? -1 : args.feature[row];
  const bool from_features = token != -1 && feature >= 0;
  const int64_t source = from_features ? feature : token;
  const bool exists = source >= 0 && source < (from_features ? args.features.rows : args.table.out);
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) {
    float x = 0;
    if (token != -1)
      x = !exists         ? __int_as_float(0x7fc00000)
          : from_features ? load(args.features, source, i)
                          : load_value(args.table.data, args.table.dtype, source * args.table.stride + i);
    for (int copy = 0; copy < args.copies; ++copy) store(args.out, row, copy * hidden + i, x);
  }
}

}  // namespace

Status embedding(OpContext& ctx, const EmbeddingArgs& args) {
  if (args.token.count == 0) return Status::ok();
  embedding_kernel<<<static_cast<unsigned>(args.token.count), 256, 0, stream_of(ctx)>>>(args);
  return launched("embedding");
}

}  // namespace lathe::cuda
