#pragma once

#include <cuda_runtime_api.h>

#include "ops/kda_prefill/kda_sm90.h"

// kda_replay for sm_90a in one launch (kernels.md K5r): the state is read, not written; 16 records a slot, keys
// pre-decayed and d in bf16, running log gates in fp32. Formulas: kda_replay.h. The gate has a bound.
namespace lathe::sm90 {

constexpr int kReplayLength = 16;
constexpr int kReplayRows = 8;  // of a sequence, at most; more give NaN

struct KdaReplay {
  const int32_t *start, *past;  // of sequences; not read by a flush
  const int32_t *slot, *cursor;
  int sequences;
  __nv_bfloat16 *ring_key, *ring_d;  // [slots, heads, 16, 128]
  float* ring_gate;                  // the same
  bool flush;
};

// single: every sequence has one row at most.
cudaError_t launch_kda_replay(const KdaCall& call, const KdaReplay& replay, bool single, cudaStream_t stream);

}  // namespace lathe::sm90
