#pragma once

#include <cstdint>

#include "model/glm5_next/config.h"

namespace lathe::glm5_next {

struct ScratchRequest {
  int64_t rows = 0, logit_rows = 0;  // of a pass
  int64_t context = 0;               // of the longest sequence
  DType dtype = DType::kBF16;        // of activations
  bool w8a8 = false;                 // some weights are quantised by row
  int ranks = 1;                     // of a context-parallel cut
  int threads = 1;
};

// The most that any operator of a text pass takes from scratch, in bytes. Operators cut long calls into passes, so this
// stops growing with the rows; scratch_bound_test holds it against what passes really take.
int64_t scratch_bound(const TextConfig& config, const ScratchRequest& request);

}  // namespace lathe::glm5_next
