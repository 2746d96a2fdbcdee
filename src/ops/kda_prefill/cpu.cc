#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cpu_features.h"
#include "ops/kda_prefill/head_run.h"
#include "ops/kda_prefill/variants.h"
#include "ops/row_floats.h"

namespace lathe {

namespace {

// A task runs the whole of a sequence for some heads, or for a part of one head: some blocks of its state's tile. Rows
// of S never meet, so how heads are grouped or parted changes no bit. Neighbouring heads in one task read long
// stretches of the same rows.
struct Task {
  KdaRun run;
  int64_t first_checkpoint, end_checkpoint;
  int begin_head = 0, end_head = 0, begin_block = 0, end_block = 0;
};

class Prefill {
 public:
  Prefill(OpContext& ctx, const KdaPrefillArgs& args, const KdaSteps& steps, KdaForm form)
      : ctx_(ctx), args_(args), scope_(*ctx.scratch) {
    for (int i = 0; i < ctx.pool->threads(); ++i)
      workers_.push_back({KdaHeadRun(steps, form, args.layer, *ctx.scratch), nullptr, nullptr});
    plan();
    const KdaHeadWork& work = workers_[0].run.work;
    for (Worker& w : workers_) {
      w.tiles = ctx.scratch->take<float>(heads_ * work.blocks() * work.block_floats());
      w.aside = ctx.scratch->take<float>(work.block_floats());
    }
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
    float *tiles, *aside;
    float* block(const Task& task, int head, int b) const {
      return tiles + ((head - task.begin_head) * run.work.blocks() + b) * run.work.block_floats();
    }
  };

  void plan() {
    int64_t checkpoint = 0;
    for (int64_t i = 0; i < args_.runs.sequences(); ++i) {
      const KdaRun run{args_.slot[i], args_.runs.start[i], args_.runs.start[i + 1], args_.runs.past[i]};
      if (run.slot < 0) zero_kda_rows(args_.y, run.begin, run.end);
      if (run.slot < 0 || run.begin == run.end) continue;
      while (checkpoint < args_.checkpoint_row.count && args_.checkpoint_row[checkpoint] < run.begin) ++checkpoint;
      const int64_t first = checkpoint;
      while (checkpoint < args_.checkpoint_row.count && args_.checkpoint_row[checkpoint] < run.end) ++checkpoint;
      runs_.push_back({run, first, checkpoint});
    }
    if (runs_.empty()) return;
    // Threads share one sequence evenly; with several, two tasks a thread even out their lengths.
    const int64_t sequences = static_cast<int64_t>(runs_.size()), threads = ctx_.pool->threads(),
                  heads = args_.layer.heads;
    const int64_t wanted = sequences == 1 ? threads : (2 * threads + sequences - 1) / sequences;
    const int64_t groups = std::clamp<int64_t>(wanted, (heads + kKdaTaskHeads - 1) / kKdaTaskHeads, heads);
    const int blocks = workers_[0].run.work.blocks();
    heads_ = static_cast<int>((heads + groups - 1) / groups);
    parts_ = static_cast<int>(std::clamp<int64_t>(threads / (sequences * heads), 1, blocks));
    for (const Task& whole : runs_)
      for (int64_t group = 0; group < groups; ++group)
        for (int part = 0; part < parts_; ++part) {
          Task t = whole;
          t.begin_head = static_cast<int>(heads * group / groups),
          t.end_head = static_cast<int>(heads * (group + 1) / groups);
          t.begin_block = blocks * part / parts_, t.end_block = blocks * (part + 1) / parts_;
          tasks_.push_back(t);
        }
    // Long ones first, so that no thread is left with one at the end.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.run.end - a.run.begin > b.run.end - b.run.begin; });
  }

  void run_task(const Task& task, Worker& worker) {
    const FlushTinyNumbers flush;
    const KdaHeadWork& work = worker.run.work;
    for (int head = task.begin_head; head < task.end_head; ++head)
      for (int b = task.begin_block; b < task.end_block; ++b) {
        float* block = worker.block(task, head, b);
        if (task.run.past == 0)
          std::fill_n(block, work.block_floats(), 0.0f);
        else
          work.steps.load_block(work.sizes, state(task.run.slot, head), b * work.steps.columns, block);
      }
    for (int64_t row = task.run.begin; row < task.run.end; row += kKdaChunk)
      for (int head = task.begin_head; head < task.end_head; ++head) run_chunk(task, worker, head, row);
    for (int head = task.begin_head; head < task.end_head; ++head) store(task, worker, head, task.run.slot);
  }

  void run_chunk(const Task& task, Worker& worker, int head, int64_t row) {
    KdaHeadRun& run = worker.run;
    run.work.take_head(head);
    const int n = run.take_rows(args_.in, args_.memory, task.run, row);
    int64_t checkpoint = task.first_checkpoint;
    while (checkpoint < task.end_checkpoint && args_.checkpoint_row[checkpoint] < row) ++checkpoint;
    for (; checkpoint < task.end_checkpoint && args_.checkpoint_row[checkpoint] < row + n - 1; ++checkpoint) {
      run.prepare(static_cast<int>(args_.checkpoint_row[checkpoint] - row + 1));
      for (int b = task.begin_block; b < task.end_block; ++b) {
        std::copy_n(worker.block(task, head, b), run.work.block_floats(), worker.aside);
        run.advance(b, worker.aside, nullptr);
        store_block(run.work, head, b, worker.aside, args_.checkpoint_slot[checkpoint]);
      }
    }
    run.prepare(n);
    const int blocks = task.end_block - task.begin_block;
    for (int b = 0; b < blocks; ++b) {
      const int first = n * b / blocks;  // rows fetched while the blocks are computed, a few with each
      if (parts_ == 1) fetch_kda_rows(run.work, args_.in, args_.y, row + first, n * (b + 1) / blocks - first);
      run.advance(task.begin_block + b, worker.block(task, head, task.begin_block + b), run.o());
    }
    if (parts_ == 1)
      store_kda_rows(run.work, args_.in, args_.y, row, n, run.o());
    else
      store_part(task, run.work, row, n, run.o());
    for (; checkpoint < task.end_checkpoint && args_.checkpoint_row[checkpoint] == row + n - 1; ++checkpoint)
      store(task, worker, head, args_.checkpoint_slot[checkpoint]);
  }

  float* state(int64_t slot, int head) const {
    return args_.memory.state.f32(slot) + int64_t{head} * args_.layer.v * args_.layer.k;
  }
  void store_block(const KdaHeadWork& work, int head, int b, const float* block, int64_t slot) const {
    work.steps.store_block(work.sizes, block, b * work.steps.columns, state(slot, head));
  }
  void store(const Task& task, const Worker& worker, int head, int64_t slot) const {
    for (int b = task.begin_block; b < task.end_block; ++b)
      store_block(worker.run.work, head, b, worker.block(task, head, b), slot);
  }

  // o, rounded as the norm wants it, waits in y for the head's other parts.
  void store_part(const Task& task, const KdaHeadWork& work, int64_t row, int n, const float* o) const {
    const int64_t v = args_.layer.v, begin = task.begin_block * work.steps.columns;
    const int64_t count = std::min<int64_t>(v, task.end_block * work.steps.columns) - begin;
    if (count <= 0) return;
    const Rows y = args_.y.columns(work.head * v + begin, count);
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
  int heads_ = 1, parts_ = 1;  // most heads of a task, parts of a head
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
