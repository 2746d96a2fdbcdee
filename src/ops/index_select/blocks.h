#pragma once

#include <algorithm>
#include <vector>

#include "ops/index_select/pick.h"
#include "ops/index_select/pool_keys.h"
#include "ops/index_select/scores.h"
#include "ops/index_select/wave.h"

// The indexer over a file's Lanes: write pools, score the rows that must choose, pick.

namespace lathe {
namespace {

template <class Picker>
class Indexer {
 public:
  Indexer(OpContext& ctx, const IndexSelectArgs& args)
      : ctx_(ctx), a_(args), budget_(args.top_k / args.kpool), scorer_(args) {}

  Status run() {
    PoolWriter(ctx_, a_).run();
    list_rows();
    ctx_.pool->run((static_cast<int64_t>(whole_.size()) + kWholeRows - 1) / kWholeRows, [&](int64_t task, int) {
      const size_t end = std::min<size_t>((task + 1) * kWholeRows, whole_.size());
      for (size_t i = task * kWholeRows; i < end; ++i) write_all(whole_[i].row, whole_[i].position);
    });
    for (size_t first = 0; first < blocks_.size();) first = choose(first);
    return Status::ok();
  }

 private:
  // A task's stretch of pools: 128 KB of bf16 keys.
  static constexpr int64_t kStretchPools = 512;
  static_assert(kStretchPools % 8 == 0);
  static constexpr int64_t kWholeRows = 16;

  struct Row {
    int64_t row, position;  // -1: padding
  };
  struct Block {
    int64_t sequence, row, position;
    int rows;
    int64_t pools;       // candidates of its last row
    int64_t first_task;  // within its wave
    float *packed, *scores;
    int64_t stride() const { return pools; }
  };

  void list_rows() {
    int64_t covered = 0;
    for (int64_t i = 0; i < a_.slot.count; ++i) {
      const int64_t begin = a_.queries.start[i], end = a_.queries.start[i + 1];
      covered = std::max(covered, end);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t position = a_.slot[i] < 0 ? -1 : a_.queries.past[i] + row - begin;
        if ((position + 1) / a_.kpool <= budget_) {
          whole_.push_back({row, position});
          continue;
        }
        const int rows = static_cast<int>(std::min<int64_t>(kIndexBlockRows, end - row));
        blocks_.push_back({i, row, position, rows, (position + rows) / a_.kpool, 0, nullptr, nullptr});
        row += rows - 1;
      }
    }
    for (; covered < a_.query.rows; ++covered) whole_.push_back({covered, -1});
  }

  // Blocks from `first` on, as many as a wave holds; returns the next.
  size_t choose(size_t first) {
    ArenaScope scope(*ctx_.scratch);
    int64_t floats = 0, tasks = 0, most = 0;
    size_t end = first;
    for (; end < blocks_.size(); ++end) {
      Block& b = blocks_[end];
      if (end > first && floats + b.rows * b.stride() > kIndexWaveFloats) break;
      floats += b.rows * b.stride();
      b.packed = ctx_.scratch->take<float>(b.rows * scorer_.query_floats());
      b.scores = ctx_.scratch->take<float>(b.rows * b.stride());
      b.first_task = tasks;
      tasks += (b.pools + kStretchPools - 1) / kStretchPools;
      most = std::max(most, b.pools);
    }
    const std::span<Block> wave(blocks_.data() + first, end - first);
    const int64_t threads = ctx_.pool->threads(), tile = scorer_.tile_floats();
    float* tiles = ctx_.scratch->take<float>(threads * tile);
    uint32_t* work = ctx_.scratch->take<uint32_t>(threads * 2 * most);
    int32_t* chosen = ctx_.scratch->take<int32_t>(threads * budget_);
    ctx_.pool->run(static_cast<int64_t>(wave.size()), [&](int64_t task, int) {
      const Block& b = wave[task];
      for (int r = 0; r < b.rows; ++r) scorer_.pack(b.row + r, b.packed + r * scorer_.query_floats());
    });
    ctx_.pool->run(tasks, [&](int64_t task, int worker) {
      const Block& b = *(
          std::upper_bound(wave.begin(), wave.end(), task, [](int64_t t, const Block& x) { return t < x.first_task; }) -
          1);
      const int64_t p = (task - b.first_task) * kStretchPools;
      scorer_.score(b.sequence, p, std::min(p + kStretchPools, b.pools), b.packed, b.rows, b.scores + p, b.stride(),
                    tiles + worker * tile);
    });
    ctx_.pool->run(static_cast<int64_t>(wave.size()), [&](int64_t task, int worker) {
      const Block& b = wave[task];
      for (int r = 0; r < b.rows; ++r) {
        int32_t* pools = chosen + worker * budget_;
        pick_greatest<Picker>(b.scores + r * b.stride(), (b.position + r + 1) / a_.kpool, budget_,
                              work + worker * 2 * most, pools);
        write_chosen(b.row + r, b.position + r, pools);
      }
    });
    return end;
  }

  void write_all(int64_t row, int64_t position) const {
    int32_t* out = a_.selected.data + row * a_.width();
    const int64_t count = a_.tail ? position + 1 : (position + 1) / a_.kpool * a_.kpool;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(i);
    finish(row, count);
  }

  void write_chosen(int64_t row, int64_t position, const int32_t* pools) const {
    int32_t* out = a_.selected.data + row * a_.width();
    int64_t count = 0;
    for (int64_t k = 0; k < budget_; ++k)
      for (int j = 0; j < a_.kpool; ++j) out[count++] = pools[k] * a_.kpool + j;
    for (int64_t t = (position + 1) / a_.kpool * a_.kpool; t <= position && a_.tail; ++t)
      out[count++] = static_cast<int32_t>(t);
    finish(row, count);
  }

  void finish(int64_t row, int64_t count) const {
    std::fill(a_.selected.data + row * a_.width() + count, a_.selected.data + (row + 1) * a_.width(), -1);
    a_.selected_count[row] = static_cast<int32_t>(count);
  }

  OpContext& ctx_;
  const IndexSelectArgs& a_;
  const int64_t budget_;
  const Scorer scorer_;
  std::vector<Row> whole_;  // rows that take all there is
  std::vector<Block> blocks_;
};

}  // namespace
}  // namespace lathe
