#include "base/cpu_features.h"
#include "ops/linear/panel_work.h"
#include "ops/lm_head/variants.h"

namespace lathe {

namespace by_panels {

namespace {

void logits_pass(const PanelWork& work, const LmHeadArgs& args, Part part) {
  const PreparedRows x = work.take(work.kernels.operand(args.hidden.dtype, args.w), part.size(), args.hidden.width);
  work.prepare(args.hidden, args.row.data + part.begin, x);
  const int64_t panels = panels_of(args.w.out), blocks = pieces(part.size(), block_rows(x.row_bytes));
  const int64_t runs = panel_runs(panels, blocks, work.threads());
  work.run(blocks * runs, [&](int64_t task, int worker) {
    work.multiply_panels(x, part_of(part.size(), blocks, task / runs), args.w, part_of(panels, runs, task % runs),
                         nullptr, args.logits, part.begin, args.hidden.dtype == DType::kBF16, worker);
  });
}

Status lm_head(OpContext& ctx, const LmHeadArgs& args, const PanelKernels& kernels) {
  const int64_t passes = pieces(args.row.count, pass_rows(kernels.row_bytes(Operand::kF32, args.hidden.width)));
  for (int64_t i = 0; i < passes; ++i) {
    ArenaScope scope(*ctx.scratch);
    logits_pass(PanelWork(ctx, kernels, args.hidden.width), args, part_of(args.row.count, passes, i));
  }
  return Status::ok();
}

}  // namespace

}  // namespace by_panels

namespace portable {
Status lm_head(OpContext& ctx, const LmHeadArgs& args) { return by_panels::lm_head(ctx, args, panel_kernels()); }
}  // namespace portable

namespace avx2 {
bool lm_head_applies(const LmHeadArgs&) { return cpu_features().avx2; }
Status lm_head(OpContext& ctx, const LmHeadArgs& args) { return by_panels::lm_head(ctx, args, panel_kernels()); }
}  // namespace avx2

namespace avx512 {
bool lm_head_applies(const LmHeadArgs&) { return cpu_features().avx512_bf16 && cpu_features().avx512_vnni; }
Status lm_head(OpContext& ctx, const LmHeadArgs& args) { return by_panels::lm_head(ctx, args, panel_kernels()); }
}  // namespace avx512

}  // namespace lathe
