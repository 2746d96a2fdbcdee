#include <algorithm>

#include "base/cpu_features.h"
#include "ops/linear/panel_work.h"
#include "ops/linear/variants.h"

namespace lathe {

namespace by_panels {

namespace {

// A product and where its panels stand among those of all products.
struct Line {
  const Product* product;
  const PreparedRows* x;
  int64_t first_panel, panels;
};

// Rows of one pass: prepared in every form that a weight asks for, then multiplied.
void multiply_pass(const PanelWork& work, const LinearArgs& args, Part rows) {
  PreparedForms forms(work, args.x.slice(rows.begin, rows.size()));
  Line lines[LinearArgs::kMaxProducts];
  int64_t panels = 0, row_bytes = 0;
  for (int i = 0; i < args.products; ++i) {
    const Product& p = args.product[i];
    lines[i] = {&p, &forms.for_weight(p.w), panels, panels_of(p.w.out)};
    panels += lines[i].panels;
    row_bytes = std::max(row_bytes, lines[i].x->row_bytes);
  }
  const int64_t blocks = pieces(rows.size(), block_rows(row_bytes)), runs = panel_runs(panels, blocks, work.threads());
  work.run(blocks * runs, [&](int64_t task, int worker) {
    const Part mine = part_of(panels, runs, task % runs);
    for (int i = 0; i < args.products; ++i) {
      const Line& line = lines[i];
      const Part of_line{std::max(mine.begin - line.first_panel, int64_t{0}),
                         std::min(mine.end - line.first_panel, line.panels)};
      const Product& p = *line.product;
      work.multiply_panels(*line.x, part_of(rows.size(), blocks, task / runs), p.w, of_line, bias_or_null(p.bias), p.y,
                           rows.begin, false, worker);
    }
  });
}

Status linear(OpContext& ctx, const LinearArgs& args, const PanelKernels& kernels) {
  const int64_t passes = pieces(args.x.rows, pass_rows(kernels.row_bytes(Operand::kF32, args.x.width)));
  for (int64_t i = 0; i < passes; ++i) {
    ArenaScope scope(*ctx.scratch);
    multiply_pass(PanelWork(ctx, kernels, args.x.width), args, part_of(args.x.rows, passes, i));
  }
  return Status::ok();
}

}  // namespace

}  // namespace by_panels

namespace portable {
Status linear(OpContext& ctx, const LinearArgs& args) { return by_panels::linear(ctx, args, panel_kernels()); }
}  // namespace portable

namespace avx2 {
bool linear_applies(const LinearArgs&) { return cpu_features().avx2; }
Status linear(OpContext& ctx, const LinearArgs& args) { return by_panels::linear(ctx, args, panel_kernels()); }
}  // namespace avx2

namespace avx512 {
bool linear_applies(const LinearArgs&) { return cpu_features().avx512_bf16 && cpu_features().avx512_vnni; }
Status linear(OpContext& ctx, const LinearArgs& args) { return by_panels::linear(ctx, args, panel_kernels()); }
}  // namespace avx512

}  // namespace lathe
