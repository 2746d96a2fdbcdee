#pragma once

#include "model/glm5_next/text_tower.h"

namespace lathe::glm5_next {

// Dense clamped SwiGLU or mixture of experts. u and y: [rows, hidden]; `layer` is for the observer.
Status feed_forward(const Step& step, OpContext& op, const TextConfig& config, const FeedForwardWeights& w, int layer,
                    const Rows& u, const Rows& y);

}  // namespace lathe::glm5_next
