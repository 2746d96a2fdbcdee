#include <algorithm>

#include "base/cpu_features.h"
#include "ops/mlp/gated_panels.h"
#include "ops/mlp/variants.h"

namespace lathe {

namespace by_panels {

namespace {

// One pass: the middle of all rows, then down.
void mlp_pass(const PanelWork& work, const MlpArgs& args, Part part) {
  PreparedForms forms(work, args.x.slice(part.begin, part.size()));
  const Middle middle = take_middle(work, args.x.dtype, args.w.down, part.size());
  const GatedRows gated{&args.w, &forms.for_weight(args.w.gate), &forms.for_weight(args.w.up), nullptr, 0, args.limit};
  {
    const int64_t panels = panels_of(args.w.gate.out),
                  blocks = pieces(part.size(), block_rows(gated.x_gate->row_bytes));
    const int64_t runs = panel_runs(panels, blocks, work.threads());
    work.run(blocks * runs, [&](int64_t task, int worker) {
      gate_panels(work, gated, part_of(part.size(), blocks, task / runs), part_of(panels, runs, task % runs), middle,
                  worker);
    });
  }
  middle.complete(work);
  const Weight& down = args.w.down;
  const int64_t panels = panels_of(down.out), blocks = pieces(part.size(), block_rows(middle.rows.row_bytes));
  const int64_t runs = panel_runs(panels, blocks, work.threads());
  work.run(blocks * runs, [&](int64_t task, int worker) {
    work.multiply_panels(middle.rows, part_of(part.size(), blocks, task / runs), down,
                         part_of(panels, runs, task % runs), bias_or_null(args.w.down_bias), args.y, part.begin, false,
                         worker);
  });
}

Status mlp(OpContext& ctx, const MlpArgs& args, const PanelKernels& kernels) {
  const int64_t bytes = 2 * kernels.row_bytes(Operand::kF32, args.x.width) + middle_row_bytes(kernels, args.w.down);
  const int64_t passes = pieces(args.x.rows, pass_rows(bytes));
  for (int64_t i = 0; i < passes; ++i) {
    ArenaScope scope(*ctx.scratch);
    mlp_pass(PanelWork(ctx, kernels, std::max(args.x.width, args.w.down.in)), args, part_of(args.x.rows, passes, i));
  }
  return Status::ok();
}

}  // namespace

}  // namespace by_panels

namespace portable {
Status mlp(OpContext& ctx, const MlpArgs& args) { return by_panels::mlp(ctx, args, panel_kernels()); }
}  // namespace portable

namespace avx2 {
bool mlp_applies(const MlpArgs&) { return cpu_features().avx2; }
Status mlp(OpContext& ctx, const MlpArgs& args) { return by_panels::mlp(ctx, args, panel_kernels()); }
}  // namespace avx2

namespace avx512 {
bool mlp_applies(const MlpArgs&) { return cpu_features().avx512_bf16 && cpu_features().avx512_vnni; }
Status mlp(OpContext& ctx, const MlpArgs& args) { return by_panels::mlp(ctx, args, panel_kernels()); }
}  // namespace avx512

}  // namespace lathe
