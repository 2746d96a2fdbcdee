#include "ops/kda_prefill/head_run.h"

#include <algorithm>

namespace lathe {

namespace {

// Matrices cost the same for 1 token as for kKdaChunk; below 10, one by one is faster (docs/ops/kda_prefill.md).
constexpr int kFewestGrouped = 10;

}  // namespace

KdaHeadRun::KdaHeadRun(const KdaSteps& steps, KdaForm form, const KdaLayer& layer, Arena& arena)
    : work(steps, layer, kKdaChunk, arena),
      map_sizes(kda_sizes(layer.k, layer.k)),
      form_(form),
      chunk_(take_kda_chunk(work.sizes, arena)) {
  o_ = arena.take<float>(int64_t{kKdaChunk} * work.sizes.vp);
  map_o_ = arena.take<float>(int64_t{kKdaChunk} * map_sizes.vp);
  no_values_ = arena.take<float>(int64_t{kKdaChunk} * map_sizes.vp);
  std::fill_n(no_values_, int64_t{kKdaChunk} * map_sizes.vp, 0.0f);
}

int KdaHeadRun::take_rows(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t row) {
  const int n = static_cast<int>(std::min<int64_t>(kKdaChunk, run.end - row));
  work.activate(in, memory, run, row, n);
  return n;
}

void KdaHeadRun::prepare(int n) {
  tokens_ = n;
  const KdaSteps& steps = work.steps;
  if (form_ == KdaForm::kChunkedTf32)
    grouped_ = steps.chunk_tf32(work.sizes, work.block, n, chunk_);
  else
    grouped_ = form_ == KdaForm::kChunked && n >= kFewestGrouped && steps.chunk(work.sizes, work.block, n, chunk_);
  if (!grouped_) work.decay_tokens(n);
}

void KdaHeadRun::advance(int block, float* tile_block, float* o) {
  advance(work.sizes, work.block.v, block, tile_block, grouped_ || o ? o : o_);
}

void KdaHeadRun::advance_map(int block, float* tile_block) {
  advance(map_sizes, no_values_, block, tile_block, grouped_ ? nullptr : map_o_);
}

void KdaHeadRun::advance(const KdaSizes& sizes, const float* values, int block, float* tile_block, float* o) {
  const KdaSteps& steps = work.steps;
  const int column = block * steps.columns;
  KdaBlock tokens = work.block;
  tokens.v = const_cast<float*>(values);
  if (!grouped_)
    steps.tokens(sizes, tokens, work.vectors, tokens_, column, tile_block, o);
  else if (form_ == KdaForm::kChunkedTf32)
    steps.advance_tf32(sizes, tokens, chunk_, column, tile_block, o);
  else
    steps.advance(sizes, tokens, chunk_, column, tile_block, o);
}

}  // namespace lathe
