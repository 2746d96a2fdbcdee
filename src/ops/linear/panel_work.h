#pragma once

#include "ops/linear/panel.h"
#include "ops/op.h"

// How a call with matrix products is cut into tasks: rows in blocks, outputs in runs of panels. Which task computes a
// value never changes its bits, so the cut may follow the number of threads.

namespace lathe {

// [begin, end) of `count` things for part `part` of `parts`.
struct Part {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
inline Part part_of(int64_t count, int64_t parts, int64_t part) {
  return {count * part / parts, count * (part + 1) / parts};
}

inline int64_t panels_of(int64_t outs) { return (outs + kPanel - 1) / kPanel; }
inline int panel_outs(const Weight& w, int64_t first_out) {
  return static_cast<int>(std::min<int64_t>(kPanel, w.out - first_out));
}

inline const float* bias_or_null(Array<const float> bias, int64_t first = 0) {
  return bias.empty() ? nullptr : bias.data + first;
}
inline const void* panel_at(const Weight& w, int64_t panel) { return w.at(panel * kPanel); }
inline int64_t pieces(int64_t count, int64_t of) { return (count + of - 1) / of; }

// A worker's memory: see PanelScratch.
constexpr int64_t kPanelValues = 2 * kMaxBlockRows * kPanel;
constexpr int64_t kPanelBytes = 16 << 10;   // a piece of K: 64 quads of 16 outputs
constexpr int64_t kSumBytes = kPanel * 32;  // of a row: at most 8 running sums an output

// Kernels, and the memory of a call's workers; taken from ctx.scratch inside the caller's ArenaScope.
class PanelWork {
 public:
  // widest: values of the longest row that is prepared.
  PanelWork(OpContext& ctx, const PanelKernels& kernels, int64_t widest);

  const PanelKernels& kernels;
  const PanelScratch& scratch(int worker) const { return scratch_[worker]; }
  int threads() const { return ctx_.pool->threads(); }
  template <class F>
  void run(int64_t tasks, F&& f) const {
    ctx_.pool->run(tasks, f);
  }

  PreparedRows take(Operand operand, int64_t rows, int64_t width) const;
  // Row i of `to` from row index[i] of x, or from row i.
  void prepare(const Rows& x, const int32_t* index, const PreparedRows& to) const;
  // y[first_row + r] = x[r]·wᵀ + bias, for r in rows and the outputs of `panels`.
  void multiply_panels(const PreparedRows& x, Part rows, const Weight& w, Part panels, const float* bias, const Rows& y,
                       int64_t first_row, bool round_bf16, int worker) const;

  template <class T>
  T* take(int64_t count) const {
    return ctx_.scratch->take<T>(count);
  }
  Rows take_floats(int64_t rows, int64_t width) const { return ctx_.scratch->rows(rows, width, DType::kF32); }

 private:
  OpContext& ctx_;
  PanelScratch* scratch_;
};

// Rows of x in every form that somebody asked for.
class PreparedForms {
 public:
  PreparedForms(const PanelWork& work, const Rows& x) : work_(work), x_(x) {}
  const PreparedRows& as(Operand operand);
  const PreparedRows& for_weight(const Weight& w) { return as(work_.kernels.operand(x_.dtype, w)); }

 private:
  const PanelWork& work_;
  Rows x_;
  PreparedRows forms_[kOperands];
};

// Rows that share a panel while it lies in L1, and that lie in L2 themselves while panels pass.
int64_t block_rows(int64_t row_bytes);

// Rows whose `bytes_per_row` fit into what a call may take from scratch: so that doesn't grow with the rows.
constexpr int64_t kPassBytes = 32 << 20;
int64_t pass_rows(int64_t bytes_per_row);

// Into how many runs `panels` are cut beside `blocks` row blocks: enough tasks to keep every thread busy to the end.
int64_t panel_runs(int64_t panels, int64_t blocks, int threads);

}  // namespace lathe
