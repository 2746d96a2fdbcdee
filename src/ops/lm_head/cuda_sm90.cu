#include "ops/linear/shared_rows.cuh"
#include "ops/lm_head/variants.h"

namespace lathe::cuda {

Status lm_head(OpContext& ctx, const LmHeadArgs& args) {
  ArenaScope scope(*ctx.scratch);
  SharedRows s{.x = args.hidden, .list = args.row.data, .rows = args.row.count, .products = 1};
  s.product[0] = {args.w, {}, args.logits};
  s.round_to_bf16 = args.hidden.dtype == DType::kBF16, s.sharp = !s.round_to_bf16;
  return multiply_shared_rows(ctx, s, true);
}

}  // namespace lathe::cuda
