#include "ops/linear/panel_work.h"

#include <algorithm>

namespace lathe {

namespace {

constexpr int64_t kBlockBytes = 768 << 10;  // of 2 MB of L2
constexpr int64_t kFewValues = 16 << 10;    // below, waking the pool costs more than the work

}  // namespace

PanelWork::PanelWork(OpContext& ctx, const PanelKernels& kernels, int64_t widest) : kernels(kernels), ctx_(ctx) {
  const int threads = ctx.pool->threads();
  scratch_ = new (ctx.scratch->take(threads * static_cast<int64_t>(sizeof(PanelScratch)))) PanelScratch[threads];
  for (int i = 0; i < threads; ++i)
    scratch_[i] = {.values = ctx.scratch->take<float>(kPanelValues),
                   .sums = ctx.scratch->take<char>(kMaxBlockRows * kSumBytes),
                   .panel = ctx.scratch->take<char>(kPanelBytes),
                   .row = ctx.scratch->take<float>((widest + 31) / 32 * 32)};
}

PreparedRows PanelWork::take(Operand operand, int64_t rows, int64_t width) const {
  PreparedRows p{.operand = operand,
                 .data = nullptr,
                 .rows = rows,
                 .width = width,
                 .row_bytes = kernels.row_bytes(operand, width)};
  p.data = ctx_.scratch->take<char>(rows * p.row_bytes);
  if (operand == Operand::kI8 || operand == Operand::kE4M3) p.scale = ctx_.scratch->take<float>(rows);
  return p;
}

void PanelWork::prepare(const Rows& x, const int32_t* index, const PreparedRows& to) const {
  const auto some = [&](Part rows, int worker) {
    for (int64_t r = rows.begin; r < rows.end; ++r)
      kernels.prepare(x, index ? index[r] : r, to, r, scratch_[worker].row);
  };
  if (to.rows * x.width <= kFewValues) return some({0, to.rows}, 0);
  const int64_t parts = std::min<int64_t>(to.rows, 8 * threads());
  run(parts, [&](int64_t part, int worker) { some(part_of(to.rows, parts, part), worker); });
}

int64_t block_rows(int64_t row_bytes) {
  return std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(row_bytes, 1), 48, kMaxBlockRows);
}

int64_t pass_rows(int64_t bytes_per_row) {
  return std::max<int64_t>(kMaxBlockRows, kPassBytes / std::max<int64_t>(1, bytes_per_row));
}

void PanelWork::multiply_panels(const PreparedRows& x, Part rows, const Weight& w, Part panels, const float* bias,
                                const Rows& y, int64_t first_row, bool round_bf16, int worker) const {
  const PanelScratch& s = scratch_[worker];
  // Behind its last panel a worker will likely go on behind those of the others.
  const int64_t onward = panels.end + (threads() - 1) * panels.size();
  for (int64_t panel = panels.begin; panel < panels.end; panel += 2) {  // two: a row of them is a line of bf16
    const int64_t out = panel * kPanel, count = std::min<int64_t>(2, panels.end - panel);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t then = panel + i + 1 < panels.end ? panel + i + 1 : onward;
      const void* next = then < panels_of(w.out) ? panel_at(w, then) : nullptr;
      kernels.multiply({x, nullptr, rows.begin, rows.size(), w, out + i * kPanel, next}, i ? s.beside() : s.values, s);
    }
    const int outs = static_cast<int>(std::min<int64_t>(count * kPanel, w.out - out));
    kernels.store(s.values, rows.size(), bias ? bias + out : nullptr, y, first_row + rows.begin, out, outs, round_bf16);
  }
}

const PreparedRows& PreparedForms::as(Operand operand) {
  PreparedRows& form = forms_[static_cast<int>(operand)];
  if (!form.data) {
    form = work_.take(operand, x_.rows, x_.width);
    work_.prepare(x_, nullptr, form);
  }
  return form;
}

int64_t panel_runs(int64_t panels, int64_t blocks, int threads) {
  if (threads == 1) return 1;
  const int64_t tasks = int64_t{threads} * (blocks > 1 ? 16 : 8);
  return std::clamp<int64_t>((tasks + blocks - 1) / std::max<int64_t>(blocks, 1), 1, std::max<int64_t>(panels, 1));
}

}  // namespace lathe
