#include "model/glm5_next/feed_forward.h"

#include "ops/mlp/mlp.h"
#include "ops/moe/moe.h"

namespace lathe::glm5_next {

Status feed_forward(const Step& step, OpContext& op, const TextConfig& c, const FeedForwardWeights& w, int layer,
                    const Rows& u, const Rows& y) {
  if (w.router.empty()) return mlp(op, {.x = u, .w = w.shared[0], .y = y, .limit = c.swiglu_limit});
  ArenaScope scope(step.activations);
  MoeArgs args{.x = u,
               .router = w.router,
               .bias = w.bias,
               .experts = {w.experts.data(), static_cast<int64_t>(w.experts.size())},
               .shared = {w.shared.data(), static_cast<int64_t>(w.shared.size())},
               .y = y,
               .chosen = {},
               .chosen_weight = {},
               .expert_count = c.experts,
               .first_expert = w.first_expert,
               .top_k = c.top_k,
               .groups = c.groups,
               .top_groups = c.top_groups,
               .normalise = c.normalise_top_k,
               .routed_scale = c.routed_scale,
               .limit = c.swiglu_limit};
  if (step.observer) {
    const int64_t count = u.rows * c.top_k;
    args.chosen = {step.activations.take<int32_t>(count), count};
    args.chosen_weight = {step.activations.take<float>(count), count};
  }
  LATHE_RETURN_IF_ERROR(moe(op, args));
  if (step.observer) step.observer->routing(layer, args.chosen, args.chosen_weight);
  return Status::ok();
}

}  // namespace lathe::glm5_next
