#pragma once

#include <cuda_runtime_api.h>

#include "ops/kda_prefill/kda_sm90.h"

// kda_prefill for sm_90a (kernels.md K4) in two launches. Sequences are cut into chunks of 16 tokens. The first launch
// makes each chunk's factors, all chunks at once; the second carries the state over the chunks of each sequence and
// head, on tensor cores, in fp32 registers, and norms and gates the outputs. With G the running log gate of a chunk:
//
//   D = T·Diag(beta)·(V - (K·exp(G))·S')      T = (I + E)^-1, E = strictly lower part of
//   Diag(beta)·(K·exp(G))·(K·exp(-G))' O = (Q·exp(G))·S' + P·D                   P = lower part of
//   (Q·exp(G))·(K·exp(-G))' S = (S + D'·(K·exp(-G)))·Diag(exp(G_end))
//
// exp(-G) stays within fp32 because a gate's lower bound times 16 does: bound in [-5, 0).
namespace lathe::sm90 {

constexpr int kKdaChunk = 16;

// All in device memory. Sequence i's rows are [start[i], start[i + 1]).
struct KdaRuns {
  const int32_t *start, *past, *slot;
  int sequences;
  int64_t rows;  // of all
  const int32_t *checkpoint_row, *checkpoint_slot;
  int checkpoints;
};

// The most that a call can use. Less makes the call work in slices; it must hold one chunk of each sequence.
int64_t kda_prefill_workspace(int64_t rows, int sequences, int heads);

cudaError_t launch_kda_prefill(const KdaCall& call, const KdaRuns& runs, void* workspace, int64_t workspace_bytes,
                               cudaStream_t stream);

}  // namespace lathe::sm90
