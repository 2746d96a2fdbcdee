#include <algorithm>
#include <cstring>

#include "base/cpu_features.h"
#include "ops/mlp/gated_panels.h"
#include "ops/moe/routing.h"
#include "ops/moe/variants.h"

// Rows are sorted by expert; then an expert is a feed-forward on its rows, and its weights are read once. Down is cut
// by columns alone: a task adds all experts' shares of its columns, in ascending order of id, so no two tasks meet.

namespace lathe {

namespace by_panels {

namespace {

constexpr int64_t kSumBytes = 512 << 10;  // of a task's columns of all rows: a quarter of L2

class MoePass {
 public:
  MoePass(OpContext& ctx, const PanelKernels& kernels, const MoeArgs& args, Part part)
      : ctx_(ctx),
        args_(args),
        part_(part),
        rows_(part.size()),
        work_(ctx, kernels, widest(args)),
        forms_(work_, args.x.slice(part.begin, rows_)) {}

  void run() {
    route();
    middles();
    const Rows y = args_.y.slice(part_.begin, rows_);
    if (!ctx_.comm || args_.experts.count == args_.expert_count) return combine(nullptr, true, true, y);
    Rows routed = work_.take_floats(rows_, args_.y.width);
    combine(nullptr, true, false, routed);
    ctx_.comm->all_reduce_sum(routed.f32(), rows_ * routed.width);
    combine(&routed, false, true, y);
  }

 private:
  static int64_t widest(const MoeArgs& args) {
    int64_t w = std::max(args.x.width, choose_scratch(args));
    for (const Array<const MlpWeights>& list : {args.experts, args.shared})
      for (int64_t e = 0; e < list.count; ++e) w = std::max(w, list[e].down.in);
    return w;
  }

  // Logits, choices, and the rows of each expert.
  void route() {
    const Weight& router = args_.router;
    const PreparedRows& x = forms_.as(work_.kernels.operand(DType::kF32, router));
    const Rows logits = work_.take_floats(rows_, args_.expert_count);
    const int64_t panels = panels_of(router.out), blocks = pieces(rows_, block_rows(x.row_bytes));
    work_.run(blocks * panels, [&](int64_t task, int worker) {
      const int64_t panel = task % panels;
      work_.multiply_panels(x, part_of(rows_, blocks, task / panels), router, {panel, panel + 1}, nullptr, logits, 0,
                            false, worker);
    });
    const int64_t shares = rows_ * args_.top_k;
    int32_t* expert = work_.take<int32_t>(shares);
    float* weight = work_.take<float>(shares);
    const int64_t parts = rows_ < 16 ? 1 : int64_t{8} * work_.threads();
    work_.run(parts, [&](int64_t task, int worker) {
      const Part rows = part_of(rows_, parts, task);
      for (int64_t r = rows.begin; r < rows.end; ++r)
        choose_experts(args_, logits.f32(r), work_.scratch(worker).row, expert + r * args_.top_k,
                       weight + r * args_.top_k);
    });
    if (!args_.chosen.empty()) std::copy_n(expert, shares, args_.chosen.data + part_.begin * args_.top_k);
    if (!args_.chosen_weight.empty()) std::copy_n(weight, shares, args_.chosen_weight.data + part_.begin * args_.top_k);
    by_expert_ = {work_.take<int64_t>(args_.experts.count + 1), work_.take<int32_t>(shares), work_.take<float>(shares),
                  0};
    sort_by_expert(args_, rows_, expert, weight, by_expert_);
  }

  // silu(gate)·up of every expert's rows, and of all rows for the shared one.
  void middles() {
    struct Job {
      GatedRows gated;
      const Middle* middle;
      int64_t rows, panels, blocks, runs, first_task;
    };
    Job* jobs = work_.take<Job>(args_.experts.count + 1);
    int64_t count = 0, panels = 0, tasks = 0;
    const auto add = [&](const MlpWeights& w, const int32_t* index, int64_t rows, const Middle& middle, int64_t first) {
      if (rows == 0) return;
      Job& j = jobs[count++];
      j = {{&w, &forms_.for_weight(w.gate), &forms_.for_weight(w.up), index, first, args_.limit},
           &middle,
           rows,
           panels_of(w.gate.out),
           0,
           0,
           0};
      j.blocks = pieces(rows, block_rows(j.gated.x_gate->row_bytes));
      panels += j.panels * j.blocks;
    };
    if (by_expert_.shares() > 0)
      expert_middle_ = take_middle(work_, args_.x.dtype, args_.experts[0].down, by_expert_.shares());
    for (int64_t e = 0; e < args_.experts.count; ++e)
      add(args_.experts[e], by_expert_.row + by_expert_.begin[e], by_expert_.begin[e + 1] - by_expert_.begin[e],
          expert_middle_, by_expert_.begin[e]);
    if (args_.shared.count) {
      shared_middle_ = take_middle(work_, args_.x.dtype, args_.shared[0].down, rows_);
      add(args_.shared[0], nullptr, rows_, shared_middle_, 0);
    }
    const int64_t run_panels = std::max<int64_t>(1, panels / (int64_t{8} * work_.threads()));
    for (int64_t i = 0; i < count; ++i) {
      Job& j = jobs[i];
      j.runs = pieces(j.panels, run_panels), j.first_task = tasks;
      tasks += j.blocks * j.runs;
    }
    work_.run(tasks, [&](int64_t task, int worker) {
      const Job& j = *(
          std::upper_bound(jobs, jobs + count, task, [](int64_t t, const Job& job) { return t < job.first_task; }) - 1);
      const int64_t local = task - j.first_task;
      gate_panels(work_, j.gated, part_of(j.rows, j.blocks, local / j.runs), part_of(j.panels, j.runs, local % j.runs),
                  *j.middle, worker);
    });
    expert_middle_.complete(work_);
    shared_middle_.complete(work_);
  }

  // y = start + the routed experts' shares + the shared expert; start nullptr: zero.
  void combine(const Rows* start, bool routed, bool shared, const Rows& y) {
    const int64_t panels = panels_of(y.width);
    const int64_t run_panels = std::max<int64_t>(1, kSumBytes / std::max<int64_t>(1, rows_ * kPanel * 4));
    const int64_t runs = std::max(pieces(panels, run_panels), panel_runs(panels, 1, work_.threads()));
    const int64_t most = pieces(panels, runs);
    float* sums = work_.take<float>(work_.threads() * most * rows_ * kPanel);
    work_.run(runs, [&](int64_t task, int worker) {
      const Part mine = part_of(panels, runs, task);
      float* sum = sums + worker * most * rows_ * kPanel;  // [panels of mine, rows, kPanel]
      begin_sums(start, mine, sum);
      if (routed)
        for (int64_t e = 0; e < args_.experts.count; ++e)
          add_expert(args_.experts[e].down, args_.experts[e].down_bias, by_expert_.begin[e], by_expert_.begin[e + 1],
                     mine, next_down(e), sum, worker);
      if (shared && args_.shared.count) add_shared(args_.shared[0].down, args_.shared[0].down_bias, mine, sum, worker);
      for (int64_t panel = mine.begin; panel < mine.end; ++panel)
        work_.kernels.store(sum + (panel - mine.begin) * rows_ * kPanel, rows_, nullptr, y, 0, panel * kPanel,
                            outs_of(panel), false);
    });
  }

  int outs_of(int64_t panel) const {
    return static_cast<int>(std::min<int64_t>(kPanel, args_.y.width - panel * kPanel));
  }

  void begin_sums(const Rows* start, Part panels, float* sum) const {
    std::memset(sum, 0, panels.size() * rows_ * kPanel * sizeof(float));
    if (!start) return;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel)
      for (int64_t r = 0; r < rows_; ++r)
        std::copy_n(start->f32(r) + panel * kPanel, outs_of(panel),
                    sum + ((panel - panels.begin) * rows_ + r) * kPanel);
  }

  // What is met after expert e's; e itself, if nothing is.
  const Weight& next_down(int64_t e) const {
    for (int64_t other = e + 1; other < args_.experts.count; ++other)
      if (by_expert_.begin[other + 1] > by_expert_.begin[other]) return args_.experts[other].down;
    return args_.shared.count ? args_.shared[0].down : args_.experts[e].down;
  }

  // Shares [begin, end) of one expert, on `panels`.
  void add_expert(const Weight& down, Array<const float> bias, int64_t begin, int64_t end, Part panels,
                  const Weight& after, float* sum, int worker) const {
    const PanelScratch& s = work_.scratch(worker);
    for (int64_t i = begin; i < end; i += kMaxBlockRows) {
      const int64_t rows = std::min<int64_t>(kMaxBlockRows, end - i);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t out = panel * kPanel;
        const void* next = panel + 1 < panels.end ? panel_at(down, panel + 1) : panel_at(after, panels.begin);
        work_.kernels.multiply({expert_middle_.rows, nullptr, i, rows, down, out, next}, s.values, s);
        work_.kernels.add_weighted(s.values, rows, outs_of(panel), bias_or_null(bias, out), by_expert_.weight + i,
                                   by_expert_.row + i, sum + (panel - panels.begin) * rows_ * kPanel, kPanel);
      }
    }
  }

  void add_shared(const Weight& down, Array<const float> bias, Part panels, float* sum, int worker) const {
    const PanelScratch& s = work_.scratch(worker);
    float one[kMaxBlockRows];
    int32_t index[kMaxBlockRows];
    std::fill_n(one, kMaxBlockRows, 1.f);
    for (int64_t i = 0; i < rows_; i += kMaxBlockRows) {
      const int64_t rows = std::min<int64_t>(kMaxBlockRows, rows_ - i);
      for (int64_t r = 0; r < rows; ++r) index[r] = static_cast<int32_t>(i + r);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t out = panel * kPanel;
        const void* next = panel + 1 < panels.end ? panel_at(down, panel + 1) : nullptr;
        work_.kernels.multiply({shared_middle_.rows, nullptr, i, rows, down, out, next}, s.values, s);
        work_.kernels.add_weighted(s.values, rows, outs_of(panel), bias_or_null(bias, out), one, index,
                                   sum + (panel - panels.begin) * rows_ * kPanel, kPanel);
      }
    }
  }

  OpContext& ctx_;
  const MoeArgs& args_;
  const Part part_;
  const int64_t rows_;
  PanelWork work_;
  PreparedForms forms_;
  RowsByExpert by_expert_;
  Middle expert_middle_, shared_middle_;
};

// Scratch of a row, at most: x in two forms, the middle of every choice and of the shared expert, logits and sums.
int64_t row_scratch(const PanelKernels& kernels, const MoeArgs& args) {
  int64_t bytes = 2 * kernels.row_bytes(Operand::kF32, args.x.width) + 8 * (args.expert_count + args.y.width);
  if (args.experts.count) bytes += args.top_k * middle_row_bytes(kernels, args.experts[0].down);
  if (args.shared.count) bytes += middle_row_bytes(kernels, args.shared[0].down);
  return bytes;
}

Status moe(OpContext& ctx, const MoeArgs& args, const PanelKernels& kernels) {
  const int64_t passes = pieces(args.x.rows, pass_rows(row_scratch(kernels, args)));  // the same on every rank
  for (int64_t i = 0; i < passes; ++i) {
    ArenaScope scope(*ctx.scratch);
    MoePass(ctx, kernels, args, part_of(args.x.rows, passes, i)).run();
  }
  return Status::ok();
}

}  // namespace

}  // namespace by_panels

namespace portable {
Status moe(OpContext& ctx, const MoeArgs& args) { return by_panels::moe(ctx, args, panel_kernels()); }
}  // namespace portable

namespace avx2 {
bool moe_applies(const MoeArgs&) { return cpu_features().avx2; }
Status moe(OpContext& ctx, const MoeArgs& args) { return by_panels::moe(ctx, args, panel_kernels()); }
}  // namespace avx2

namespace avx512 {
bool moe_applies(const MoeArgs&) { return cpu_features().avx512_bf16 && cpu_features().avx512_vnni; }
Status moe(OpContext& ctx, const MoeArgs& args) { return by_panels::moe(ctx, args, panel_kernels()); }
}  // namespace avx512

}  // namespace lathe
