#pragma once

#include <optional>
#include <vector>

#include "base/view.h"
#include "model/glm5_next/config.h"
#include "model/weight_loader.h"
#include "ops/kda_prefill/kda_layer.h"
#include "ops/mlp/mlp.h"

// The weights of the text tower and the MTP block as operators take them. Shapes as in model.md 12.1; under a cut, this
// rank's part.
namespace lathe::glm5_next {

// A hyper-connection site with the norm of its sub-layer.
struct SiteWeights {
  Weight fn;
  Array<const float> base, scale, norm;
};

struct KdaWeights {
  Weight q, k, v, f_a, f_b, g_a, g_b, b, o;
  KdaLayer layer;
};

struct IndexWeights {
  Weight query, key, gate, head;
  Array<const float> key_norm_weight, key_norm_bias, ape;
};

struct SparseWeights {
  Weight q_a, q_b, kv_a, kv_b, o;
  Array<const float> q_norm, kv_norm;
  std::optional<IndexWeights> index;  // none: shares the sets of the layer before
};

// Dense: only `shared`, which is the whole feed-forward. MoE: router, experts and perhaps a shared expert.
struct FeedForwardWeights {
  Weight router;
  Array<const float> bias;
  std::vector<MlpWeights> experts;
  int first_expert = 0;
  std::vector<MlpWeights> shared;  // none or one
};

struct LayerWeights {
  SiteWeights attention_site, feed_forward_site;
  std::optional<KdaWeights> kda;
  std::optional<SparseWeights> sparse;
  FeedForwardWeights feed_forward;
};

// The next-next-token block: a plain residual around one sparse layer and its MoE (model.md 10).
struct MtpWeights {
  Array<const float> embedding_norm, hidden_norm, input_norm, post_norm, head_norm;
  Weight join;  // eh_proj [hidden, 2·hidden]
  SparseWeights sparse;
  FeedForwardWeights feed_forward;
};

struct TextWeights {
  Weight embedding, lm_head;
  Array<const float> final_norm;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;

  std::vector<DeviceBuffer> buffers;  // what the views point into, besides the mapped files
  int64_t mapped_bytes = 0, device_bytes = 0;
};

// Whether the model can be cut into so many ranks.
Status check_partition(const TextConfig& config, const Partition& partition);

Result<TextWeights> load_text_weights(const TextConfig& config, const Checkpoint& checkpoint, Device& device,
                                      const Partition& partition);

}  // namespace lathe::glm5_next
