#pragma once

#include "model/glm5_next/text_tower.h"

namespace lathe::glm5_next {

// One sparse layer's mixer: low-rank projections, token sets (unless shared), attention over latents, o_proj.
// `selection` is written by a layer with an index and read by one without.
Status sparse_mixer(const Step& step, OpContext& op, const TextConfig& config, const SparseWeights& w, int sparse_layer,
                    const Rows& u, const Selection& selection, const Rows& y);

}  // namespace lathe::glm5_next
