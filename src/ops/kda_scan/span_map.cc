#include "ops/kda_scan/span_map.h"

#include <algorithm>

namespace lathe {

KdaSpanMap::KdaSpanMap(const KdaHeadRun& run, KdaMapForm form, Arena& arena)
    : sizes_(run.map_sizes), form_(form), columns_(run.work.steps.columns), block_(run.work.block_floats()) {
  a_blocks_ = sizes_.vp / columns_, b_blocks_ = run.work.blocks();
  a_ = arena.take<float>(a_blocks_ * block_);
  b_ = arena.take<float>(b_blocks_ * block_);
  if (form == KdaMapForm::kIncrement) return;
  chunk_ = arena.take<float>(a_blocks_ * block_);
  chunk_a_ = arena.take<float>(a_floats(run));
  product_ = arena.take<float>(block_);
}

void KdaSpanMap::set_identity(float* tile) const {
  std::fill_n(tile, a_blocks_ * block_, 0.0f);
  for (int i = 0; i < sizes_.k; ++i) tile[i / columns_ * block_ + int64_t{i} * columns_ + i % columns_] = 1;
}

void KdaSpanMap::clear() {
  set_identity(a_);
  std::fill_n(b_, b_blocks_ * block_, 0.0f);
}

void KdaSpanMap::append(KdaHeadRun& run) {
  for (int n = 0; n < b_blocks_; ++n) run.advance(n, b_ + n * block_, nullptr);
  float* tile = form_ == KdaMapForm::kIncrement ? a_ : chunk_;
  if (tile == chunk_) set_identity(chunk_);
  for (int n = 0; n < a_blocks_; ++n) run.advance_map(n, tile + n * block_);
  if (tile == a_) return;
  store_matrix(chunk_, chunk_a_);
  for (int n = 0; n < a_blocks_; ++n) {
    std::fill_n(product_, block_, 0.0f);
    run.work.steps.join(sizes_, chunk_a_, a_ + n * block_, product_, true);
    std::copy_n(product_, block_, a_ + n * block_);
  }
}

void KdaSpanMap::store_matrix(const float* tile, float* a) const {
  for (int row = 0; row < sizes_.kp; ++row) {
    const float* column = tile + row / columns_ * block_ + row % columns_;
    for (int i = 0; i < sizes_.kp; ++i)
      a[int64_t{row} * sizes_.kp + i] = row < sizes_.k ? column[int64_t{i} * columns_] : 0;
  }
}

void apply_kda_map(const KdaHeadRun& run, const float* a, const float* state, float* b) {
  const int64_t block = run.work.block_floats();
  for (int n = 0; n < run.work.blocks(); ++n)
    run.work.steps.join(run.work.sizes, a, state + n * block, b + n * block, false);
}

}  // namespace lathe
