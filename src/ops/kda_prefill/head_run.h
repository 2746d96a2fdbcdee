#pragma once

#include "ops/kda_prefill/head_work.h"

namespace lathe {

// Heads of a task at most: 8 states of 128 x 128 fit into half of a 1 MB second-level cache.
constexpr int kKdaTaskHeads = 8;

enum class KdaForm { kSequential, kChunked, kChunkedTf32 };

// Tokens of one head over blocks of its state's tile, a chunk at a time: the heart of kda_prefill and kda_scan.
class KdaHeadRun {
 public:
  KdaHeadRun(const KdaSteps& steps, KdaForm form, const KdaLayer& layer, Arena& arena);

  // Activates up to kKdaChunk rows of a run, from `row`; returns how many.
  int take_rows(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t row);
  // Makes what `advance` needs of the first n activated tokens: matrices, or vectors where they go one by one. Which of
  // the two depends on these tokens alone.
  void prepare(int n);
  // Takes a block of the tile over the prepared tokens. Outputs go to o, columns of the block, unless that is nullptr.
  void advance(int block, float* tile_block, float* o);
  // The same for a tile of K rows whose values are zero: a span's map A, when started from I.
  void advance_map(int block, float* tile_block);

  float* o() const { return o_; }  // [kKdaChunk, vp]
  float* tile_block(float* tile, int block) const { return tile + block * work.block_floats(); }

  KdaHeadWork work;
  const KdaSizes map_sizes;  // of a head whose values are as many as its keys

 private:
  void advance(const KdaSizes& sizes, const float* values, int block, float* tile_block, float* o);

  const KdaForm form_;
  KdaChunk chunk_;
  int tokens_ = 0;
  bool grouped_ = false;
  float *o_, *map_o_, *no_values_;
};

}  // namespace lathe
