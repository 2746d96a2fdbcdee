#include "ops/mlp/gated_panels.h"

namespace lathe {

namespace {

bool is_quantised(Operand o) { return o == Operand::kI8 || o == Operand::kE4M3; }

}  // namespace

Middle take_middle(const PanelWork& work, DType x, const Weight& down, int64_t rows) {
  Middle m;
  m.rows = work.take(work.kernels.operand(x, down), rows, down.in);
  if (is_quantised(m.rows.operand))
    m.raw = work.take_floats(rows, down.in);
  else
    m.round_bf16 = x == DType::kBF16;
  return m;
}

int64_t middle_row_bytes(const PanelKernels& kernels, const Weight& down) {
  return 2 * kernels.row_bytes(Operand::kF32, down.in);  // the most: quantised as fp32, and raw
}

void gate_panels(const PanelWork& work, const GatedRows& g, Part rows, Part panels, const Middle& middle, int worker) {
  const PanelScratch& s = work.scratch(worker);
  const PanelKernels& k = work.kernels;
  const int32_t* index = g.index ? g.index + rows.begin : nullptr;
  const int64_t to = g.first_middle + rows.begin;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t out = panel * kPanel;
    const int outs = panel_outs(g.w->gate, out);
    const void* next = panel + 1 < panels.end ? panel_at(g.w->gate, panel + 1) : nullptr;
    k.multiply({*g.x_gate, index, rows.begin, rows.size(), g.w->gate, out, panel_at(g.w->up, panel)}, s.values, s);
    k.multiply({*g.x_up, index, rows.begin, rows.size(), g.w->up, out, next}, s.beside(), s);
    k.swiglu(s.values, s.beside(), rows.size(), outs, bias_or_null(g.w->gate_bias, out),
             bias_or_null(g.w->up_bias, out), g.limit);
    if (middle.raw.empty())
      k.put(s.values, rows.size(), outs, middle.round_bf16, middle.rows, to, out);
    else
      k.store(s.values, rows.size(), nullptr, middle.raw, to, out, outs, false);
  }
}

}  // namespace lathe
