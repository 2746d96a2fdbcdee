#pragma once

#include "ops/cuda_kernel.cuh"

namespace lathe::cuda {

constexpr int kMostCopies = 8;

// "post" of a hyper-connection site: X'[s] = post[s]·y + sum_j comb[j][s]·X[j] of one channel, unrounded. Without y:
// X' = X.
struct StreamMix {
  Rows streams, y;
  Array<const float> post, comb;
  int copies;

  __device__ void operator()(int64_t row, int64_t i, int64_t hidden, float* mixed) const {
    float old[kMostCopies];
#pragma unroll
    for (int s = 0; s < kMostCopies; ++s)
      if (s < copies) old[s] = load(streams, row, s * hidden + i);
    const float added = y.empty() ? 0 : load(y, row, i);
    const float *p = post.data + row * copies, *c = comb.data + row * copies * copies;
#pragma unroll
    for (int s = 0; s < kMostCopies; ++s) {
      if (s >= copies) break;
      if (y.empty()) {
        mixed[s] = old[s];
        continue;
      }
      float x = p[s] * added;
#pragma unroll
      for (int j = 0; j < kMostCopies; ++j)
        if (j < copies) x += c[j * copies + s] * old[j];
      mixed[s] = x;
    }
  }
};

}  // namespace lathe::cuda
