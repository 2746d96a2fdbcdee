#pragma once

#include "ops/linear/panel_work.h"
#include "ops/mlp/mlp.h"

// The first half of a feed-forward: rows of the middle, silu(gate)·up, panel by panel. mlp and moe share it.

namespace lathe {

// Rows between gate/up and down, as down's weight wants them.
struct Middle {
  PreparedRows rows;
  Rows raw;  // fp32: where rows are quantised, which can't begin before a row is complete; else empty
  bool round_bf16 = false;

  void complete(const PanelWork& work) const {
    if (!raw.empty()) work.prepare(raw, nullptr, rows);
  }
};

Middle take_middle(const PanelWork& work, DType x, const Weight& down, int64_t rows);
int64_t middle_row_bytes(const PanelKernels& kernels, const Weight& down);

// What meets: x in the forms that gate and up want, and which of its rows; nullptr: row i is row i.
struct GatedRows {
  const MlpWeights* w;
  const PreparedRows *x_gate, *x_up;
  const int32_t* index;
  int64_t first_middle;  // where the first of the rows goes
  float limit;
};

// Rows [rows.begin, rows.end) of g, panels [panels.begin, panels.end) of the inner width.
void gate_panels(const PanelWork& work, const GatedRows& g, Part rows, Part panels, const Middle& middle, int worker);

}  // namespace lathe
