#include "model/glm5_next/weights.h"

namespace lathe::glm5_next {

namespace {

constexpr const char* kLayers = "model.language_model.layers.";

class TextLoader {
 public:
  TextLoader(const TextConfig& config, const Checkpoint& checkpoint, Device& device, const Partition& partition)
      : c_(config), partition_(partition), load_(checkpoint, device, partition) {}

  Result<TextWeights> run() {
    TextWeights w;
    load_.enter("", "");
    w.embedding = load_.matrix("model.language_model.embed_tokens.weight", c_.vocab, c_.hidden);
    w.final_norm = load_.vector("model.language_model.norm.weight", c_.hidden);
    const bool tied = c_.tied_embeddings && !load_.has("lm_head.weight");
    w.lm_head = load_.matrix_as("lm_head.weight", tied ? "model.language_model.embed_tokens.weight" : "lm_head.weight",
                                c_.vocab, c_.hidden);
    for (size_t i = 0; i < c_.layers.size() && load_.status().is_ok(); ++i)
      w.layers.push_back(layer(static_cast<int>(i)));
    // transformers drops the block when it saves, but keeps the field that announces it.
    load_.enter(fmt::format("{}{}.", kLayers, c_.layers.size()), "sparse");
    if (c_.mtp_layers && load_.has("eh_proj.weight")) w.mtp = mtp();
    LATHE_RETURN_IF_ERROR(load_.status());
    w.mapped_bytes = load_.mapped_bytes();
    w.device_bytes = load_.device_bytes();
    w.buffers = load_.take_buffers();
    return w;
  }

 private:
  SiteWeights site(const std::string& name, const std::string& norm) {
    const int s = c_.hc_copies, n = 2 * s + s * s;
    // transformers' module names: attn_hc.fn for hc_attn_fn.
    auto tensor = [&](const char* part) {
      const std::string disk = fmt::format("hc_{}_{}", name, part), module = fmt::format("{}_hc.{}", name, part);
      return load_.has(disk) || !load_.has(module) ? disk : module;
    };
    return {load_.matrix(tensor("fn"), n, int64_t{s} * c_.hidden), load_.vector(tensor("base"), n),
            load_.vector(tensor("scale"), 3), load_.vector(norm, c_.hidden)};
  }

  Array<const float> conv_weight() {
    const int64_t d = c_.kda_dim, count = c_.kda_heads * d * c_.conv_width;
    if (!load_.has("self_attn.conv1d.weight") || load_.has("self_attn.q_conv1d.weight"))
      return load_.vectors({"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"},
                           count, d * c_.conv_width);
    return load_.fused_vector("self_attn.conv1d.weight", "self_attn.q_conv1d.weight", 3, count, d * c_.conv_width);
  }

  // f_a_proj, dt_bias and A_log under the module that transformers puts them in.
  std::string gate_part(const std::string& name) {
    return load_.has("self_attn.forget_gate." + name) ? "self_attn.forget_gate." + name : "self_attn." + name;
  }

  KdaWeights kda() {
    const int64_t d = c_.kda_dim, width = c_.kda_heads * d, h = c_.hidden;
    KdaWeights w;
    w.q = load_.matrix("self_attn.q_proj.weight", width, h, d);
    w.k = load_.matrix("self_attn.k_proj.weight", width, h, d);
    w.v = load_.matrix("self_attn.v_proj.weight", width, h, d);
    w.f_a = load_.matrix(gate_part("f_a_proj.weight"), d, h);
    w.f_b = load_.matrix(gate_part("f_b_proj.weight"), width, d, d);
    w.g_a = load_.matrix("self_attn.g_a_proj.weight", d, h);
    w.g_b = load_.matrix("self_attn.g_b_proj.weight", width, d, d);
    w.b = load_.matrix("self_attn.b_proj.weight", c_.kda_heads, h, 1);
    w.o = load_.matrix("self_attn.o_proj.weight", h, width, d);
    w.layer.conv_weight = conv_weight();
    w.layer.a_log = load_.vector(gate_part("A_log"), c_.kda_heads, 1);
    w.layer.dt_bias = load_.vector(gate_part("dt_bias"), width, d);
    w.layer.norm_weight = load_.vector("self_attn.o_norm.weight", d);
    w.layer.heads = static_cast<int>(w.b.out);
    w.layer.k = w.layer.v = c_.kda_dim;
    w.layer.width = c_.conv_width;
    w.layer.bound = c_.gate_bound;
    w.layer.norm_eps = c_.rms_eps;
    return w;
  }

  IndexWeights index() {
    const std::string p = "self_attn.indexer.";
    const int64_t d = c_.index_dim, h = c_.hidden;
    // Like other parameters that aren't a module's weight, these two carry no suffix.
    return {load_.matrix(p + "wq_b.weight", c_.index_heads * d, c_.q_rank),
            load_.matrix(p + "wk.weight", d, h),
            load_.matrix(p + "index_kpool_compress_gate", d, h),
            load_.matrix(p + "weights_proj.weight", c_.index_heads, h),
            load_.vector(p + "k_norm.weight", d),
            load_.vector(p + "k_norm.bias", d),
            load_.vector(p + "index_kpool_compress_ape", c_.kpool * d)};
  }

  SparseWeights sparse(bool shared_index) {
    const int64_t h = c_.hidden;
    SparseWeights w;
    w.q_a = load_.matrix("self_attn.q_a_proj.weight", c_.q_rank, h);
    w.q_norm = load_.vector("self_attn.q_a_layernorm.weight", c_.q_rank);
    w.q_b = load_.matrix("self_attn.q_b_proj.weight", int64_t{c_.heads} * c_.qk, c_.q_rank);
    w.kv_a = load_.matrix("self_attn.kv_a_proj_with_mqa.weight", c_.latent, h);
    w.kv_norm = load_.vector("self_attn.kv_a_layernorm.weight", c_.latent);
    w.kv_b = load_.matrix("self_attn.kv_b_proj.weight", int64_t{c_.heads} * (c_.qk + c_.v), c_.latent);
    w.o = load_.matrix("self_attn.o_proj.weight", h, int64_t{c_.heads} * c_.v);
    if (!shared_index) w.index = index();
    return w;
  }

  MlpWeights mlp(const std::string& p, int64_t inner) {
    MlpWeights w;
    w.gate = load_.matrix(p + "gate_proj.weight", inner, c_.hidden);
    w.up = load_.matrix(p + "up_proj.weight", inner, c_.hidden);
    w.down = load_.matrix(p + "down_proj.weight", c_.hidden, inner);
    return w;
  }

  MlpWeights stacked_expert(int64_t e) {
    const int64_t inner = c_.expert_inner;
    MlpWeights w;
    w.gate = load_.stacked("mlp.experts.gate_up_proj", c_.experts, 2 * inner, c_.hidden, e, 0, inner);
    w.up = load_.stacked("mlp.experts.gate_up_proj", c_.experts, 2 * inner, c_.hidden, e, inner, inner);
    w.down = load_.stacked("mlp.experts.down_proj", c_.experts, c_.hidden, inner, e, 0, c_.hidden);
    return w;
  }

  FeedForwardWeights moe() {
    FeedForwardWeights w;
    w.router = load_.matrix("mlp.gate.weight", c_.experts, c_.hidden);
    w.bias = load_.vector("mlp.gate.e_score_correction_bias", c_.experts);
    const Partition::Range mine =
        partition_.kind == Parallel::kExpert ? partition_.share(c_.experts) : Partition::Range{0, c_.experts};
    w.first_expert = static_cast<int>(mine.begin);
    const bool stacked = load_.has("mlp.experts.gate_up_proj");
    for (int64_t e = mine.begin; e < mine.begin + mine.count && load_.status().is_ok(); ++e)
      w.experts.push_back(stacked ? stacked_expert(e) : mlp(fmt::format("mlp.experts.{}.", e), c_.expert_inner));
    if (c_.shared_experts) w.shared.push_back(mlp("mlp.shared_experts.", int64_t{c_.expert_inner} * c_.shared_experts));
    return w;
  }

  FeedForwardWeights dense() {
    FeedForwardWeights w;
    w.shared.push_back(mlp("mlp.", c_.dense_inner));
    return w;
  }

  LayerWeights layer(int i) {
    const LayerConfig& kind = c_.layers[i];
    load_.enter(fmt::format("{}{}.", kLayers, i), kind.mixer == MixerKind::kKda ? "kda" : "sparse");
    LayerWeights w;
    w.attention_site = site("attn", "input_layernorm.weight");
    w.feed_forward_site = site("ffn", "post_attention_layernorm.weight");
    if (kind.mixer == MixerKind::kKda)
      w.kda = kda();
    else
      w.sparse = sparse(kind.shared_index);
    w.feed_forward = kind.moe ? moe() : dense();
    return w;
  }

  MtpWeights mtp() {
    MtpWeights w;
    w.embedding_norm = load_.vector("enorm.weight", c_.hidden);
    w.hidden_norm = load_.vector("hnorm.weight", c_.hidden);
    w.join = load_.matrix("eh_proj.weight", c_.hidden, 2 * int64_t{c_.hidden});
    w.input_norm = load_.vector("input_layernorm.weight", c_.hidden);
    w.post_norm = load_.vector("post_attention_layernorm.weight", c_.hidden);
    w.head_norm = load_.vector("shared_head.norm.weight", c_.hidden);
    w.sparse = sparse(false);
    w.feed_forward = moe();
    return w;
  }

  const TextConfig& c_;
  Partition partition_;
  WeightLoader load_;
};

}  // namespace

Status check_partition(const TextConfig& config, const Partition& partition) {
  if (partition.is(Parallel::kTensor) && partition.size > config.kda_heads)
    return invalid("--cut tp={}: the model has {} KDA heads", partition.size, config.kda_heads);
  if (partition.is(Parallel::kExpert) && partition.size > config.experts)
    return invalid("--cut ep={}: the model has {} experts", partition.size, config.experts);
  return Status::ok();
}

Result<TextWeights> load_text_weights(const TextConfig& config, const Checkpoint& checkpoint, Device& device,
                                      const Partition& partition) {
  LATHE_RETURN_IF_ERROR(check_partition(config, partition));
  return TextLoader(config, checkpoint, device, partition).run();
}

}  // namespace lathe::glm5_next
