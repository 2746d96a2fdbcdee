#include <algorithm>

#include "ops/kda_prefill/kda_chunk_factors.cuh"
#include "ops/kda_prefill/kda_recurrence.cuh"

namespace lathe::sm90 {

namespace {

constexpr int kFactorGroups = 4;  // chunks a block

__global__ void __launch_bounds__(kFactorGroups* kFactorThreads, 2)
    factors_kernel(KdaCall call, KdaRuns runs, ChunkSlice slice) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int group = threadIdx.x / kFactorThreads, t = threadIdx.x % kFactorThreads;
  FactorScratch& scratch = reinterpret_cast<FactorScratch*>(memory)[group];
  const int64_t number = slice.first + int64_t{blockIdx.x} * kFactorGroups + group;
  const int head = blockIdx.y;
  if (number >= slice.last) return;
  const ChunkPlace place = find_chunk(runs, number);
  const int64_t slot = runs.slot[place.sequence];
  if (place.count == 0 || slot < 0) return;
  if (place.full)
    make_factors<true>(call, place, head, slot, runs.past[place.sequence], t, 1 + group, scratch);
  else
    make_factors<false>(call, place, head, slot, runs.past[place.sequence], t, 1 + group, scratch);
  fence_for_bulk();
  sync_group(1 + group, kFactorThreads);
  if (t == 0) {
    bulk_store(slice.factors(number, head, call.heads), &scratch.out, sizeof(ChunkFactors));
    commit_stores();
    wait_stores_read<0>();
  }
}

template <int kBlocks>
cudaError_t launch_recurrence(const KdaCall& call, const KdaRuns& runs, const ChunkSlice& slice, cudaStream_t stream) {
  constexpr int bytes = sizeof(RecurrenceShared);
  if (cudaError_t e =
          cudaFuncSetAttribute(recurrence_kernel<kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return e;
  const dim3 grid(2 * call.heads, runs.sequences);
  recurrence_kernel<kBlocks><<<grid, kRecurrenceThreads, bytes, stream>>>(call, runs, slice);
  return cudaGetLastError();
}

cudaError_t run_slice(const KdaCall& call, const KdaRuns& runs, const ChunkSlice& slice, cudaStream_t stream) {
  int device = 0, processors = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  if (cudaError_t e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return e;
  constexpr int factor_bytes = kFactorGroups * sizeof(FactorScratch);
  if (cudaError_t e = cudaFuncSetAttribute(factors_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, factor_bytes))
    return e;
  const auto groups = static_cast<unsigned>((slice.last - slice.first + kFactorGroups - 1) / kFactorGroups);
  factors_kernel<<<dim3(groups, call.heads), kFactorGroups * kFactorThreads, factor_bytes, stream>>>(call, runs, slice);
  if (cudaError_t e = cudaGetLastError()) return e;
  return 2 * call.heads * runs.sequences <= processors ? launch_recurrence<1>(call, runs, slice, stream)
                                                       : launch_recurrence<2>(call, runs, slice, stream);
}

}  // namespace

int64_t kda_prefill_workspace(int64_t rows, int sequences, int heads) {
  return chunk_numbers(rows, sequences) * heads * static_cast<int64_t>(sizeof(ChunkFactors));
}

cudaError_t launch_kda_prefill(const KdaCall& call, const KdaRuns& runs, void* workspace, int64_t workspace_bytes,
                               cudaStream_t stream) {
  if (runs.sequences == 0) return cudaSuccess;
  const int64_t numbers = chunk_numbers(runs.rows, runs.sequences);
  const int64_t a_slice = workspace_bytes / (static_cast<int64_t>(sizeof(ChunkFactors)) * call.heads);
  if (a_slice < 1) return cudaErrorInvalidValue;
  for (int64_t first = 0; first < numbers; first += a_slice) {
    const ChunkSlice slice{static_cast<ChunkFactors*>(workspace), first, std::min(numbers, first + a_slice)};
    if (cudaError_t e = run_slice(call, runs, slice, stream)) return e;
  }
  return cudaSuccess;
}

}  // namespace lathe::sm90
