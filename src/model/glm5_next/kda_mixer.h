#pragma once

#include "model/glm5_next/text_tower.h"

namespace lathe::glm5_next {

// One KDA layer's mixer: projections, then one operator a phase of rows, then o_proj. u and y: [rows, hidden].
Status kda_mixer(const Step& step, OpContext& op, const KdaWeights& w, const Partition& partition, int kda_layer,
                 const Rows& u, const Rows& y);

}  // namespace lathe::glm5_next
