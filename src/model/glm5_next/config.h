#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

// config.json of a glm5_next model (model.md 1.1): every field is read from the file; only what the reference assumes
// for a missing key is assumed here.
namespace lathe::glm5_next {

enum class MixerKind { kKda, kSparse };

struct LayerConfig {
  MixerKind mixer = MixerKind::kKda;
  bool moe = false;
  bool shared_index = false;  // sparse layers only: takes the token sets of the layer before
};

struct TextConfig {
  int vocab = 0, hidden = 0;
  std::vector<LayerConfig> layers;
  int mtp_layers = 0;  // 0 or 1
  int dense_inner = 0, expert_inner = 0;
  int experts = 0, shared_experts = 0, top_k = 0, groups = 1, top_groups = 1;
  bool normalise_top_k = true;
  float routed_scale = 1, swiglu_limit = 0;
  int heads = 0, q_rank = 0, latent = 0, qk = 0, v = 0;  // sparse MLA
  int index_heads = 0, index_dim = 0, index_top_k = 0, kpool = 0;
  bool always_tail = true;
  int kda_heads = 0, kda_dim = 0, conv_width = 0;
  float gate_bound = 0;  // 0: none, the softplus form
  int hc_copies = 4, hc_iters = 20;
  float hc_eps = 1e-6f, rms_eps = 1e-5f;
  int max_positions = 0;
  bool tied_embeddings = false;
  DType dtype = DType::kBF16;  // the released activations

  int sparse_layers() const;
};

struct VisionConfig {
  int depth = 0, hidden = 0, heads = 0, inner = 0, out_hidden = 0, projection_inner = 0;
  int patch = 14, temporal_patch = 2, merge = 2, channels = 3;
  bool bias = true;
  float rms_eps = 1e-5f, swiglu_limit = 10, theta = 10000;
};

struct Config {
  std::string file;
  TextConfig text;
  std::optional<VisionConfig> vision;
  int image_token = -1, video_token = -1, image_start = -1, image_end = -1, video_start = -1, video_end = -1;
  int pad_token = -1;
  std::vector<int> eos;  // config.json, or generation_config.json beside it

  static Result<Config> read(const std::string& model_dir);
  static Result<Config> parse(const std::string& text, const std::string& file);
};

}  // namespace lathe::glm5_next
