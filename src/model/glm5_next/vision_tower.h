#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "image/patches.h"
#include "model/glm5_next/vision_weights.h"
#include "ops/op.h"

namespace lathe::glm5_next {

// Sees the rows after each stage: "patch_embed", "block.0", ..., "post_layernorm", "downsample".
using VisionTap = std::function<void(std::string_view stage, const Rows& rows)>;

// The vision tower (model.md 11): patches in, rows for the text tower's image positions out.
class VisionTower {
 public:
  VisionTower(VisionConfig config, VisionWeights weights, DType dtype)
      : config_(config), weights_(std::move(weights)), dtype_(dtype) {}

  // Features of whole images and clips, one after another: [feature_rows(media), out_hidden] in this tower's dtype.
  // Runs a few segments at a time; how they are grouped changes no bit, since segments don't see each other.
  Status encode(OpContext op, Arena& activations, std::span<const Patches* const> media, const Rows& features,
                const VisionTap& tap = {}) const;

  // The tower over rows of pixels already on the device. layout: arrays of lay_out(), on the device.
  struct Placed {
    Array<const int32_t> row, col, segment_start;
  };
  Status forward(OpContext op, Arena& activations, const Rows& pixels, const Placed& layout, const Rows& features,
                 const VisionTap& tap = {}) const;

  int64_t feature_rows(std::span<const Patches* const> media) const;
  // Bytes that encode takes of `activations` where the largest segment has so many patches.
  int64_t activation_bytes(int64_t segment_patches) const;

  const VisionConfig& config() const { return config_; }
  const VisionWeights& weights() const { return weights_; }
  DType dtype() const { return dtype_; }

 private:
  Status block(OpContext& op, Arena& activations, const VisionBlockWeights& w, const Placed& layout,
               const Rows& x) const;
  Status merge(OpContext& op, Arena& activations, const Rows& x, const Rows& features, const VisionTap& tap) const;
  int patch_width() const { return config_.channels * config_.temporal_patch * config_.patch * config_.patch; }
  int members() const { return config_.merge * config_.merge; }

  VisionConfig config_;
  VisionWeights weights_;
  DType dtype_;
};

}  // namespace lathe::glm5_next
