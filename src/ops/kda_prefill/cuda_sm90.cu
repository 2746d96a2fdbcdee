#include "ops/kda_prefill/sequential.cuh"
#include "ops/kda_prefill/variants.h"

namespace lathe::cuda {

namespace {

__device__ void copy_state(const float* S, const KdaLayer& layer, const KdaMemory& memory, int64_t slot, int head) {
  const int cells = layer.v * layer.k;
  for (int i = threadIdx.x; i < cells; i += blockDim.x) store(memory.state, slot, int64_t{head} * cells + i, S[i]);
}

__device__ void copy_ring(const KdaLayer& layer, const KdaMemory& memory, int64_t from, int64_t to, int head) {
  const int64_t channels = int64_t{layer.heads} * (2 * layer.k + layer.v);
  for (int r = 0; r < memory.ring; ++r)
    for_kda_channels(layer, head, [&](int, int64_t c) {
      store(memory.conv, to, r * channels + c, load(memory.conv, from, r * channels + c));
    });
}

// Grid: (heads, sequences).
__global__ void __launch_bounds__(kKdaThreads) runs_kernel(KdaRuns a) {
  extern __shared__ float shared[];
  __shared__ float space[32];
  const int head = blockIdx.x, cells = a.layer.v * a.layer.k;
  const int64_t sequence = blockIdx.y, slot = a.slot[sequence], past = a.past[sequence];
  const int64_t begin = a.start.empty() ? sequence : a.start[sequence];
  const int64_t end = a.start.empty() ? sequence + 1 : a.start[sequence + 1];
  if (slot < 0) return kda_zero_rows(a.layer, a.y, begin, end, head);
  if (begin == end) return;
  float* S = shared;
  KdaToken t = KdaToken::at(shared + cells, a.layer);
  for (int i = threadIdx.x; i < cells; i += blockDim.x)
    S[i] = past > 0 ? load(a.memory.state, slot, int64_t{head} * cells + i) : 0;
  int64_t checkpoint = 0;
  for (int64_t row = begin; row < end; ++row) {
    kda_take_token(a.in, a.layer, a.memory, row, head, slot, past + row - begin, t, space);
    kda_step(S, a.layer, t);
    kda_put_output(a.in, a.layer, a.y, row, head, t, space);
    while (checkpoint < a.checkpoint_row.count && a.checkpoint_row[checkpoint] < row) ++checkpoint;
    for (; checkpoint < a.checkpoint_row.count && a.checkpoint_row[checkpoint] == row; ++checkpoint) {
      copy_state(S, a.layer, a.memory, a.checkpoint_slot[checkpoint], head);
      copy_ring(a.layer, a.memory, slot, a.checkpoint_slot[checkpoint], head);
    }
  }
  copy_state(S, a.layer, a.memory, slot, head);
}

}  // namespace

Status run_kda(OpContext& ctx, const KdaRuns& runs) {
  if (runs.slot.count == 0 || runs.in.qkv.rows == 0) return Status::ok();
  const int64_t shared = 4 * (int64_t{runs.layer.v} * runs.layer.k + KdaToken::floats(runs.layer));
  LATHE_RETURN_IF_ERROR(allow_shared(runs_kernel, shared));
  runs_kernel<<<dim3(runs.layer.heads, static_cast<unsigned>(runs.slot.count)), kKdaThreads, shared, stream_of(ctx)>>>(
      runs);
  return launched("kda token by token");
}

bool kda_prefill_applies(const KdaPrefillArgs& a) { return kda_fits(a.layer); }

Status kda_prefill(OpContext& ctx, const KdaPrefillArgs& a) {
  return run_kda(ctx, {a.in, a.layer, a.memory, a.runs.start, a.runs.past, a.slot, a.checkpoint_row, a.checkpoint_slot,
                       a.y});
}

}  // namespace lathe::cuda
