#pragma once

#include "ops/kda_prefill/kda_prefill_sm90.cuh"
#include "ops/kda_prefill/kda_sm90.cuh"

// A chunk's factors as they lie in the workspace, and where chunks lie.
namespace lathe::sm90 {

// Matrices of 16 tokens are bf16, their cells of 16 bytes permuted within a row so that eight rows' cells of a column
// lie in different banks.
constexpr int kHalfSize = kKdaSize / 2;  // the values are kept in two halves, for two blocks

struct alignas(128) ChunkKeys {
  __nv_bfloat16 key_decayed[kKdaChunk * kKdaSize];  // k·exp(G)
  __nv_bfloat16 query[kKdaChunk * kKdaSize];        // q·exp(G)
  __nv_bfloat16 key_raised[kKdaChunk * kKdaSize];   // k·exp(-G)
  __nv_bfloat16 solve[kKdaChunk * kKdaChunk];       // T·Diag(beta)
  __nv_bfloat16 product[kKdaChunk * kKdaChunk];     // P
  float decay[kKdaSize];                            // exp(G) after the last token
};

struct ChunkFactors {
  ChunkKeys keys;
  __nv_bfloat16 value[2][kKdaChunk * kHalfSize];
};
static_assert(sizeof(ChunkFactors) == 17920);

// Element offset of cell `cell` (8 values) of row `token`.
template <int kWidth>
__device__ inline int cell_offset(int token, int cell) {
  return token * kWidth + (cell ^ (token & 7)) * 8;
}

// Sequence i's chunks take the numbers from chunk_base(start[i], i) on: no two sequences' overlap, and no prefix sum is
// needed. Some numbers stay unused.
__host__ __device__ inline int64_t chunk_base(int64_t start, int sequence) { return start / kKdaChunk + sequence; }
__host__ __device__ inline int64_t chunk_numbers(int64_t rows, int sequences) { return chunk_base(rows, sequences); }

struct ChunkPlace {
  int sequence;
  int32_t first, count;  // rows of the batch; count 0: an unused number
  int32_t offset;        // of the first row in its run
  bool full;             // has all its tokens
};

__device__ inline ChunkPlace find_chunk(const KdaRuns& runs, int64_t number) {
  int low = 0, high = runs.sequences - 1;  // the last sequence that begins at or before `number`
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (chunk_base(runs.start[middle], middle) <= number)
      low = middle;
    else
      high = middle - 1;
  }
  const int32_t begin = runs.start[low], end = runs.start[low + 1];
  const int32_t offset = static_cast<int32_t>(number - chunk_base(begin, low)) * kKdaChunk;
  const int32_t left = end - begin - offset;
  return {low, begin + offset,
          left < 0           ? 0
          : left < kKdaChunk ? left
                             : kKdaChunk,
          offset, begin + offset + kKdaChunk <= end};
}

}  // namespace lathe::sm90
