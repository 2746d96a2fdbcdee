#pragma once

#include <vector>

#include "base/view.h"
#include "model/glm5_next/config.h"
#include "model/weight_loader.h"
#include "ops/mlp/mlp.h"

// The weights of the vision tower as operators take them; names and shapes as in model.md 12.1. Whole on every rank.
namespace lathe::glm5_next {

struct VisionBlockWeights {
  Array<const float> norm1, norm2, q_norm, k_norm;
  Weight qkv, proj;
  Array<const float> qkv_bias, proj_bias;
  MlpWeights mlp;
};

struct VisionWeights {
  Weight patch_embed, downsample;  // convolutions whose strides are their kernels: plain matrices
  Array<const float> patch_embed_bias, downsample_bias;
  std::vector<VisionBlockWeights> blocks;
  Array<const float> post_norm;
  Weight merger_proj;
  Array<const float> merger_norm_weight, merger_norm_bias;
  MlpWeights merger;

  std::vector<DeviceBuffer> buffers;  // what the views point into, besides the mapped files
  int64_t mapped_bytes = 0, device_bytes = 0;
};

Result<VisionWeights> load_vision_weights(const VisionConfig& config, const Checkpoint& checkpoint, Device& device);

}  // namespace lathe::glm5_next
