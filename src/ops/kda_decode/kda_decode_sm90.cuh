#pragma once

#include <cuda_runtime_api.h>

#include "ops/kda_prefill/kda_sm90.h"

// kda_decode for sm_90a in one launch: convolution, norms, gates, recurrence and gated norm (kernels.md K5). A block
// owns a whole head of a row, so norms and gates are computed once; states stream through shared memory. A row's result
// doesn't depend on the number of rows.
namespace lathe::sm90 {

enum class KdaState { kF32, kBF16 };

cudaError_t launch_kda_decode(const KdaCall& call, const int32_t* past, const int32_t* slot, int rows, KdaState state,
                              cudaStream_t stream);

}  // namespace lathe::sm90
