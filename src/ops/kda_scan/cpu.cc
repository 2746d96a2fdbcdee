#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/kda_prefill/head_run.h"
#include "ops/kda_scan/span_map.h"
#include "ops/kda_scan/variants.h"

namespace lathe {

namespace {

// What all ranks know of a rank's part of a sequence.
struct Part {
  int64_t rows = 0, past = 0;
};

class Scan {
 public:
  Scan(OpContext& ctx, const KdaScanArgs& args, const KdaSteps& steps, KdaForm form, KdaMapForm map_form)
      : ctx_(ctx),
        args_(args),
        scope_(*ctx.scratch),
        ranks_(ctx.comm ? ctx.comm->size() : 1),
        rank_(ctx.comm ? ctx.comm->rank() : 0) {
    for (int i = 0; i < ctx.pool->threads(); ++i) {
      workers_.emplace_back(steps, KdaForm::kChunked, args.layer, *ctx.scratch);
      map_workers_.emplace_back(steps, form, args.layer, *ctx.scratch);
      maps_.emplace_back(map_workers_.back(), map_form, *ctx.scratch);
    }
    const KdaHeadRun& run = workers_[0];
    tile_ = run.work.blocks() * run.work.block_floats();
    map_ = KdaSpanMap::a_floats(run) + tile_;
    tail_bytes_ = args.memory.conv.item_bytes();
  }

  void run() {
    exchange_rows();
    for (int64_t i = 0; i < args_.runs.sequences(); ++i) {
      const KdaRun run{args_.slot[i], args_.runs.start[i], args_.runs.start[i + 1], args_.runs.past[i]};
      if (run.slot < 0) zero_kda_rows(args_.y, run.begin, run.end);
      if (ctx_.comm)
        run_ranks(i, run);
      else if (run.slot >= 0 && run.begin < run.end)
        run_segments(run);
    }
  }

 private:
  Part part(int64_t sequence, int rank) const { return parts_[rank * args_.runs.sequences() + sequence]; }

  // Every rank's rows and positions, and the last rows of each, as many as a ring holds.
  void exchange_rows() {
    const int64_t sequences = args_.runs.sequences();
    std::vector<Part> mine(sequences);
    for (int64_t i = 0; i < sequences; ++i)
      if (args_.slot[i] >= 0) mine[i] = {args_.runs.start[i + 1] - args_.runs.start[i], args_.runs.past[i]};
    parts_ = mine;
    if (!ctx_.comm) return;
    parts_.resize(sequences * ranks_);
    ctx_.comm->all_gather(mine.data(), parts_.data(), sequences * static_cast<int64_t>(sizeof(Part)));
    const int64_t row_bytes = this->row_bytes();
    std::vector<char> tails(sequences * tail_bytes_);
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t rows = std::min<int64_t>(mine[i].rows, args_.memory.ring), end = args_.runs.start[i + 1];
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(tails.data() + i * tail_bytes_ + r * row_bytes, args_.in.qkv.at(end - rows + r), row_bytes);
    }
    tails_.resize(tails.size() * ranks_);
    ctx_.comm->all_gather(tails.data(), tails_.data(), static_cast<int64_t>(tails.size()));
  }
  int64_t row_bytes() const { return args_.layer.channels() * dtype_bytes(args_.in.qkv.dtype); }

  // The last rows of a rank's part into this rank's ring.
  void take_tail(int64_t sequence, int rank, int64_t slot) const {
    const Part p = part(sequence, rank);
    const int64_t rows = std::min<int64_t>(p.rows, args_.memory.ring);
    const char* from = tails_.data() + (rank * args_.runs.sequences() + sequence) * tail_bytes_;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<char*>(args_.memory.conv.at(slot)) +
                      (p.past + p.rows - rows + r) % args_.memory.ring * row_bytes(),
                  from + r * row_bytes(), row_bytes());
  }

  void run_ranks(int64_t sequence, const KdaRun& run) {
    const ArenaScope scope(*ctx_.scratch);
    const int heads = args_.layer.heads;
    int64_t rows = 0;
    for (int r = 0; r < ranks_; ++r) rows += part(sequence, r).rows;
    if (rows == 0) return;
    for (int r = 0; r < rank_ && run.slot >= 0; ++r) take_tail(sequence, r, run.slot);

    float *mine = ctx_.scratch->take<float>(heads * map_), *all = ctx_.scratch->take<float>(ranks_ * heads * map_);
    const bool have_rows = run.slot >= 0 && run.begin < run.end;
    if (have_rows)
      ctx_.pool->run(heads, [&](int64_t head, int worker) {
        make_map(run, run.begin, static_cast<int>(head), worker, mine + head * map_);
      });
    ctx_.comm->all_gather(mine, all, heads * map_ * static_cast<int64_t>(sizeof(float)));
    if (run.slot < 0) return;

    float *begin = ctx_.scratch->take<float>(heads * tile_), *end = ctx_.scratch->take<float>(heads * tile_);
    ctx_.pool->run(heads, [&](int64_t head, int worker) {
      const FlushTinyNumbers flush;
      const float* state =
          load_state(worker, static_cast<int>(head), run.slot, args_.before[sequence], end + head * tile_);
      for (int r = 0; r < ranks_; ++r) {
        if (r == rank_) std::copy_n(state, tile_, begin + head * tile_);
        if (part(sequence, r).rows > 0) state = apply(worker, all + (r * heads + head) * map_, state);
      }
      std::copy_n(state, tile_, end + head * tile_);
      if (have_rows) run_rows(run, run.begin, static_cast<int>(head), worker, begin + head * tile_);
    });
    for (int r = rank_; r < ranks_; ++r) take_tail(sequence, r, run.slot);
    ctx_.pool->run(heads, [&](int64_t head, int worker) {
      store_state(worker, static_cast<int>(head), run.slot, end + head * tile_);
    });
  }

  void run_segments(const KdaRun& whole) {
    const ArenaScope scope(*ctx_.scratch);
    const int64_t heads = args_.layer.heads, rows = whole.end - whole.begin;
    std::vector<int64_t> starts;  // of the segments that aren't empty, and the end of the last
    for (int64_t s = 0, row = whole.begin; s < args_.segments && row < whole.end; ++s) {
      starts.push_back(row);
      row += rows / args_.segments + (s < rows % args_.segments ? 1 : 0);
    }
    starts.push_back(whole.end);
    const auto segments = static_cast<int64_t>(starts.size()) - 1, last = segments - 1;
    float *maps = ctx_.scratch->take<float>(heads * last * map_), *first = ctx_.scratch->take<float>(heads * tile_);
    ctx_.pool->run(heads * last, [&](int64_t task, int worker) {
      make_map(upto(whole, starts[task % last + 1]), starts[task % last], static_cast<int>(task / last), worker,
               maps + task * map_);
    });
    ctx_.pool->run(heads, [&](int64_t head, int worker) {
      const FlushTinyNumbers flush;
      const float* state = load_state(worker, static_cast<int>(head), whole.slot, whole.past, first + head * tile_);
      for (int64_t s = 0; s < last; ++s) state = apply(worker, maps + (head * last + s) * map_, state);
    });
    ctx_.pool->run(heads * segments, [&](int64_t task, int worker) {
      const FlushTinyNumbers flush;
      const int64_t head = task / segments, s = task % segments;
      float* state = s == 0 ? first + head * tile_ : b_of(maps + (head * last + s - 1) * map_);
      run_rows(upto(whole, starts[s + 1]), starts[s], static_cast<int>(head), worker, state);
      if (s == last) store_state(worker, static_cast<int>(head), whole.slot, state);
    });
    push_kda_rows(args_.in, args_.memory, whole, whole.end, whole.slot);
  }
  static KdaRun upto(KdaRun run, int64_t end) {
    run.end = end;
    return run;
  }

  // A map in memory is A [kp, kp], then B's tile.
  float* b_of(float* map) const { return map + KdaSpanMap::a_floats(workers_[0]); }

  // Of rows [row, run.end).
  void make_map(const KdaRun& run, int64_t row, int head, int worker, float* to) {
    const FlushTinyNumbers flush;
    KdaHeadRun& w = map_workers_[worker];
    KdaSpanMap& map = maps_[worker];
    w.work.take_head(head);
    map.clear();
    for (; row < run.end; row += kKdaChunk) {
      w.prepare(w.take_rows(args_.in, args_.memory, run, row));
      map.append(w);
    }
    map.store_a(to);
    std::copy_n(map.b(), tile_, b_of(to));
  }

  // The state after a map, in the place of its B.
  float* apply(int worker, float* map, const float* state) {
    apply_kda_map(workers_[worker], map, state, b_of(map));
    return b_of(map);
  }

  float* load_state(int worker, int head, int64_t slot, int64_t position, float* tile) const {
    const KdaHeadWork& work = workers_[worker].work;
    if (position == 0)
      std::fill_n(tile, tile_, 0.0f);
    else
      for (int b = 0; b < work.blocks(); ++b)
        work.steps.load_block(work.sizes, state(slot, head), b * work.steps.columns, tile + b * work.block_floats());
    return tile;
  }
  void store_state(int worker, int head, int64_t slot, const float* tile) const {
    const KdaHeadWork& work = workers_[worker].work;
    for (int b = 0; b < work.blocks(); ++b)
      work.steps.store_block(work.sizes, tile + b * work.block_floats(), b * work.steps.columns, state(slot, head));
  }
  float* state(int64_t slot, int head) const {
    return args_.memory.state.f32(slot) + int64_t{head} * args_.layer.v * args_.layer.k;
  }

  // Rows [row, run.end) from `tile`, which ends as the state after them.
  void run_rows(const KdaRun& run, int64_t row, int head, int worker, float* tile) {
    KdaHeadRun& w = workers_[worker];
    w.work.take_head(head);
    for (; row < run.end; row += kKdaChunk) {
      const int n = w.take_rows(args_.in, args_.memory, run, row);
      w.prepare(n);
      for (int b = 0; b < w.work.blocks(); ++b) w.advance(b, tile + b * w.work.block_floats(), w.o());
      store_kda_rows(w.work, args_.in, args_.y, row, n, w.o());
    }
  }

  OpContext& ctx_;
  const KdaScanArgs& args_;
  ArenaScope scope_;
  const int ranks_, rank_;
  std::vector<KdaHeadRun> workers_, map_workers_;  // of the last pass, in fp32 as kda_prefill's, and of the maps
  std::vector<KdaSpanMap> maps_;
  int64_t tile_, map_, tail_bytes_;  // floats of a state's tile, floats of a map, bytes of a ring
  std::vector<Part> parts_;          // [ranks][sequences]
  std::vector<char> tails_;          // [ranks][sequences][ring rows]
};

Status scan(OpContext& ctx, const KdaScanArgs& args, KdaForm form, KdaMapForm map_form) {
  Scan(ctx, args, kda_steps(), form, map_form).run();
  return Status::ok();
}

}  // namespace

namespace cpu {
bool applies(const KdaScanArgs& args) { return args.memory.state.dtype == DType::kF32; }
bool narrow_rows(const KdaScanArgs& args) { return applies(args) && args.in.qkv.dtype != DType::kF32; }
Status increment(OpContext& ctx, const KdaScanArgs& args) {
  return scan(ctx, args, KdaForm::kChunked, KdaMapForm::kIncrement);
}
Status increment_tf32(OpContext& ctx, const KdaScanArgs& args) {
  return scan(ctx, args, KdaForm::kChunkedTf32, KdaMapForm::kIncrement);
}
Status product_tf32(OpContext& ctx, const KdaScanArgs& args) {
  return scan(ctx, args, KdaForm::kChunkedTf32, KdaMapForm::kProduct);
}
}  // namespace cpu

}  // namespace lathe
