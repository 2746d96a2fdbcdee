#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cpu_features.h"
#include "ops/kda_prefill/head_run.h"
#include "ops/kda_prefill/variants.h"
#include "ops/row_floats.h"

namespace lathe {

namespace {

// A task runs the whole of a sequence for a part of a head: some blocks of its state's tile. Rows of S never meet, so
// how many parts there are changes no bit; with one part the rows of y are normed while they are still near.
struct Task {
  KdaRun run;
  int head, begin_block, end_block;
  int64_t first_checkpoint, end_checkpoint;
};

class Prefill {
 public:
  Prefill(OpContext& ctx, const KdaPrefillArgs& args, const KdaSteps& steps, KdaForm form)
      : ctx_(ctx), args_(args), scope_(*ctx.scratch) {
    for (int i = 0; i < ctx.pool->threads(); ++i) {
      workers_.push_back({KdaHeadRun(steps, form, args.layer, *ctx.scratch), nullptr, nullptr});
      const KdaHeadWork& work = workers_.back().run.work;
      workers_.back().tile = ctx.scratch->take<float>(work.blocks() * work.block_floats());
      workers_.back().aside = ctx.scratch->take<float>(work.block_floats());
    }
    plan();
  }

  void run() {
    ctx_.pool->run(static_cast<int64_t>(tasks_.size()),
                   [&](int64_t task, int worker) { run_task(tasks_[task], workers_[worker]); });
    if (parts_ > 1) ctx_.pool->run(args_.y.rows, [&](int64_t row, int worker) { norm_row(row, workers_[worker]); });
    ctx_.pool->run(static_cast<int64_t>(runs_.size()), [&](int64_t i, int) { push(runs_[i]); });
  }

 private:
  struct Worker {
    KdaHeadRun run;
    float *tile, *aside;
  };

  void plan() {
    const KdaHeadWork& work = workers_[0].run.work;
    int64_t checkpoint = 0;
    for (int64_t i = 0; i < args_.runs.sequences(); ++i) {
      const KdaRun run{args_.slot[i], args_.runs.start[i], args_.runs.start[i + 1], args_.runs.past[i]};
      if (run.slot < 0) zero_kda_rows(args_.y, run.begin, run.end);
      if (run.slot < 0 || run.begin == run.end) continue;
      while (checkpoint < args_.checkpoint_row.count && args_.checkpoint_row[checkpoint] < run.begin) ++checkpoint;
      const int64_t first = checkpoint;
      while (checkpoint < args_.checkpoint_row.count && args_.checkpoint_row[checkpoint] < run.end) ++checkpoint;
      runs_.push_back({run, -1, 0, 0, first, checkpoint});
    }
    const int64_t heads = static_cast<int64_t>(runs_.size()) * args_.layer.heads;
    if (heads == 0) return;
    parts_ = static_cast<int>(std::clamp<int64_t>(ctx_.pool->threads() / heads, 1, work.blocks()));
    for (const Task& whole : runs_)
      for (int head = 0; head < args_.layer.heads; ++head)
        for (int part = 0; part < parts_; ++part) {
          Task t = whole;
          t.head = head, t.begin_block = work.blocks() * part / parts_,
          t.end_block = work.blocks() * (part + 1) / parts_;
          tasks_.push_back(t);
        }
    // Long ones first, so that no thread is left with one at the end.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.run.end - a.run.begin > b.run.end - b.run.begin; });
  }

  void run_task(const Task& task, Worker& worker) {
    const FlushTinyNumbers flush;
    KdaHeadRun& head = worker.run;
    KdaHeadWork& work = head.work;
    work.take_head(task.head);
    if (task.run.past == 0)
      std::fill_n(worker.tile, work.blocks() * work.block_floats(), 0.0f);
    else
      each_block(task, worker, [&](int b, float* tile) {
        work.steps.load_block(work.sizes, state(work, task.run.slot), b * work.steps.columns, tile);
      });
    int64_t checkpoint = task.first_checkpoint;
    for (int64_t row = task.run.begin; row < task.run.end; row += kKdaChunk) {
      const int n = head.take_rows(args_.in, args_.memory, task.run, row);
      for (; checkpoint < task.end_checkpoint && args_.checkpoint_row[checkpoint] < row + n - 1; ++checkpoint) {
        head.prepare(static_cast<int>(args_.checkpoint_row[checkpoint] - row + 1));
        each_block(task, worker, [&](int b, float* tile) {
          std::copy_n(tile, work.block_floats(), worker.aside);
          head.advance(b, worker.aside, nullptr);
          store(work, b, worker.aside, args_.checkpoint_slot[checkpoint]);
        });
      }
      head.prepare(n);
      each_block(task, worker, [&](int b, float* tile) { head.advance(b, tile, head.o()); });
      if (parts_ == 1)
        store_kda_rows(work, args_.in, args_.y, row, n, head.o());
      else
        store_part(task, work, row, n, head.o());
      for (; checkpoint < task.end_checkpoint && args_.checkpoint_row[checkpoint] == row + n - 1; ++checkpoint)
        each_block(task, worker, [&](int b, float* tile) { store(work, b, tile, args_.checkpoint_slot[checkpoint]); });
    }
    each_block(task, worker, [&](int b, float* tile) { store(work, b, tile, task.run.slot); });
  }

  template <class F>
  void each_block(const Task& task, Worker& worker, F&& f) {
    for (int b = task.begin_block; b < task.end_block; ++b) f(b, worker.run.tile_block(worker.tile, b));
  }
  float* state(const KdaHeadWork& work, int64_t slot) const { return work.state(args_.memory, slot); }
  void store(const KdaHeadWork& work, int block, const float* tile_block, int64_t slot) const {
    work.steps.store_block(work.sizes, tile_block, block * work.steps.columns, state(work, slot));
  }

  // o, rounded as the norm wants it, waits in y for the head's other parts.
  void store_part(const Task& task, const KdaHeadWork& work, int64_t row, int n, const float* o) const {
    const int64_t v = args_.layer.v, begin = task.begin_block * work.steps.columns;
    const int64_t count = std::min<int64_t>(v, task.end_block * work.steps.columns) - begin;
    if (count <= 0) return;
    const Rows y = args_.y.columns(task.head * v + begin, count);
    for (int r = 0; r < n; ++r) write_row(y, row + r, o + int64_t{r} * work.sizes.vp + begin);
  }
  void norm_row(int64_t row, Worker& worker) const {
    const auto run =
        std::upper_bound(runs_.begin(), runs_.end(), row, [](int64_t r, const Task& t) { return r < t.run.end; });
    if (run == runs_.end() || row < run->run.begin) return;  // padding
    KdaHeadWork& work = worker.run.work;
    for (work.head = 0; work.head < args_.layer.heads; ++work.head) {
      read_row(args_.y.columns(int64_t{work.head} * args_.layer.v, args_.layer.v), row, worker.run.o());
      store_kda_rows(work, args_.in, args_.y, row, 1, worker.run.o());
    }
  }

  void push(const Task& task) const {
    for (int64_t c = task.first_checkpoint; c < task.end_checkpoint; ++c) {
      const int64_t to = args_.checkpoint_slot[c];
      std::memcpy(args_.memory.conv.at(to), args_.memory.conv.at(task.run.slot), args_.memory.conv.item_bytes());
      push_kda_rows(args_.in, args_.memory, task.run, args_.checkpoint_row[c] + 1, to);
    }
    push_kda_rows(args_.in, args_.memory, task.run, task.run.end, task.run.slot);
  }

  OpContext& ctx_;
  const KdaPrefillArgs& args_;
  ArenaScope scope_;
  std::vector<Worker> workers_;
  std::vector<Task> runs_, tasks_;
  int parts_ = 1;
};

Status prefill(OpContext& ctx, const KdaPrefillArgs& args, const KdaSteps& steps, KdaForm form) {
  Prefill(ctx, args, steps, form).run();
  return Status::ok();
}

}  // namespace

namespace portable {
bool applies(const KdaPrefillArgs& args) { return args.memory.state.dtype == DType::kF32; }
Status chunked(OpContext& ctx, const KdaPrefillArgs& args) {
  return prefill(ctx, args, kda_steps_portable(), KdaForm::kChunked);
}
}  // namespace portable

namespace avx2 {
bool applies(const KdaPrefillArgs& args) { return portable::applies(args) && cpu_features().avx2; }
Status chunked(OpContext& ctx, const KdaPrefillArgs& args) {
  return prefill(ctx, args, kda_steps_avx2(), KdaForm::kChunked);
}
}  // namespace avx2

namespace best {
Status chunked(OpContext& ctx, const KdaPrefillArgs& args) {
  return prefill(ctx, args, kda_steps(), KdaForm::kChunked);
}
Status sequential(OpContext& ctx, const KdaPrefillArgs& args) {
  return prefill(ctx, args, kda_steps(), KdaForm::kSequential);
}
}  // namespace best

}  // namespace lathe
