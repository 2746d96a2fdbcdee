#include "model/glm5_next/vision_weights.h"

namespace lathe::glm5_next {

namespace {

constexpr const char* kVisual = "model.visual.";

class VisionLoader {
 public:
  VisionLoader(const VisionConfig& config, const Checkpoint& checkpoint, Device& device)
      : c_(config), load_(checkpoint, device, Partition{}) {}

  Result<VisionWeights> run() {
    const int64_t h = c_.hidden, out = c_.out_hidden, p = c_.patch, t = c_.temporal_patch, m = c_.merge;
    VisionWeights w;
    load_.enter(kVisual, "");
    w.patch_embed =
        load_.matrix_of_shape("patch_embed.proj.weight", {h, c_.channels, t, p, p}, h, c_.channels * t * p * p);
    w.patch_embed_bias = load_.vector("patch_embed.proj.bias", h);
    for (int b = 0; b < c_.depth && load_.status().is_ok(); ++b) w.blocks.push_back(block(b));
    load_.enter(kVisual, "");
    w.post_norm = load_.vector("post_layernorm.weight", h);
    w.downsample = load_.matrix_of_shape("downsample.weight", {out, h, m, m}, out, h * m * m);
    w.downsample_bias = load_.vector("downsample.bias", out);
    w.merger_proj = load_.matrix("merger.proj.weight", out, out);
    w.merger_norm_weight = load_.vector("merger.post_projection_norm.weight", out);
    w.merger_norm_bias = load_.vector("merger.post_projection_norm.bias", out);
    w.merger = mlp("merger.", c_.projection_inner, out);
    LATHE_RETURN_IF_ERROR(load_.status());
    w.mapped_bytes = load_.mapped_bytes();
    w.device_bytes = load_.device_bytes();
    w.buffers = load_.take_buffers();
    return w;
  }

 private:
  // A bias that config.json announces must be there; one that the file holds anyway is used, too.
  Array<const float> bias(const std::string& name, int64_t count, bool announced) {
    return announced || load_.has(name) ? load_.vector(name, count) : Array<const float>{};
  }

  MlpWeights mlp(const std::string& place, int64_t inner, int64_t width) {
    const bool announced = c_.bias && place == "mlp.";
    return {.gate = load_.matrix(place + "gate_proj.weight", inner, width),
            .up = load_.matrix(place + "up_proj.weight", inner, width),
            .down = load_.matrix(place + "down_proj.weight", width, inner),
            .gate_bias = bias(place + "gate_proj.bias", inner, announced),
            .up_bias = bias(place + "up_proj.bias", inner, announced),
            .down_bias = bias(place + "down_proj.bias", width, announced)};
  }

  VisionBlockWeights block(int b) {
    const int64_t h = c_.hidden, dim = c_.hidden / c_.heads;
    load_.enter(fmt::format("{}blocks.{}.", kVisual, b), "");
    VisionBlockWeights w;
    w.norm1 = load_.vector("norm1.weight", h);
    w.norm2 = load_.vector("norm2.weight", h);
    w.q_norm = load_.vector("attn.q_norm.weight", dim);
    w.k_norm = load_.vector("attn.k_norm.weight", dim);
    w.qkv = load_.matrix("attn.qkv.weight", 3 * h, h);
    w.qkv_bias = bias("attn.qkv.bias", 3 * h, c_.bias);
    w.proj = load_.matrix("attn.proj.weight", h, h);
    w.proj_bias = bias("attn.proj.bias", h, c_.bias);
    w.mlp = mlp("mlp.", c_.inner, h);
    return w;
  }

  const VisionConfig& c_;
  WeightLoader load_;
};

}  // namespace

Result<VisionWeights> load_vision_weights(const VisionConfig& config, const Checkpoint& checkpoint, Device& device) {
  return VisionLoader(config, checkpoint, device).run();
}

}  // namespace lathe::glm5_next
