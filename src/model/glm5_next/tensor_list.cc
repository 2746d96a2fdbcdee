#include "model/glm5_next/tensor_list.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace lathe::glm5_next {

namespace {

constexpr int kBlock = 128;

// Deviations are given relative to 1/sqrt(in): 1 keeps the size of normed rows.
class Lister {
 public:
  Lister(const Config& config, WeightFormat format) : c_(config.text), config_(config), format_(format) {}

  std::vector<TensorInfo> run() {
    const int64_t h = c_.hidden;
    const int layers = static_cast<int>(c_.layers.size());
    place_ = "model.language_model.";
    // Deviation 1 in every stream: the first norm then changes little.
    values("embed_tokens.weight", TensorPart::kEmbedding, c_.dtype, {c_.vocab, h}, {InitialValue::kBell, 0, 1});
    for (int i = 0; i < layers; ++i) layer(i);
    if (c_.mtp_layers) mtp(layers);
    place_ = "model.language_model.", layer_ = -1;
    norm("norm.weight", TensorPart::kNorms, h);
    place_ = "";
    if (!c_.tied_embeddings) matrix("lm_head.weight", TensorPart::kLmHead, c_.vocab, h);
    if (config_.vision) vision(*config_.vision);
    return std::move(list_);
  }

 private:
  TensorInfo& values(const std::string& name, TensorPart part, DType dtype, std::vector<int64_t> shape,
                     InitialValue initial) {
    if (layer_ == static_cast<int>(c_.layers.size())) part = TensorPart::kMtp;
    return list_.emplace_back(TensorInfo{.name = place_ + name,
                                         .shape = std::move(shape),
                                         .dtype = dtype,
                                         .part = part,
                                         .layer = layer_,
                                         .initial = initial});
  }
  void norm(const std::string& name, TensorPart part, int64_t width) {
    values(name, part, c_.dtype, {width}, {InitialValue::kBell, 1, 0.1f});
  }
  void bias(const std::string& name, TensorPart part, int64_t width) {
    values(name, part, c_.dtype, {width}, {InitialValue::kBell, 0, 0.02f});
  }
  TensorInfo& matrix(const std::string& name, TensorPart part, int64_t out, int64_t in, float gain = 1) {
    return values(name, part, c_.dtype, {out, in}, {InitialValue::kBell, 0, gain / std::sqrt(static_cast<float>(in))});
  }

  void wide(const std::string& name, TensorPart part, int64_t out, int64_t in, float gain = 1) {
    TensorInfo& w = matrix(name, part, out, in, gain);
    w.wide = true;
    if (format_ == WeightFormat::kPlain || (format_ == WeightFormat::kBlockFp8 && part == TensorPart::kKda)) return;
    const bool blocks = format_ == WeightFormat::kBlockFp8;
    w.dtype = format_ == WeightFormat::kRowInt8 ? DType::kI8 : DType::kE4M3;
    w.block_out = blocks ? kBlock : 1;
    w.block_in = blocks ? kBlock : static_cast<int>(in);
    TensorInfo scale = w;
    scale.name += blocks ? "_scale_inv" : "_scale";
    scale.dtype = DType::kF32;
    scale.shape = {(out + w.block_out - 1) / w.block_out, (in + w.block_in - 1) / w.block_in};
    scale.wide = false, scale.scale = true;
    // From what the weight's largest values need to a quarter more: no two alike, so that mixing them up is found out.
    const float need = w.initial.spread * InitialValue::kBellEnd / (w.dtype == DType::kI8 ? 127 : 448);
    scale.initial = {InitialValue::kEven, 1.125f * need, 0.125f * need};
    list_.push_back(std::move(scale));
  }

  void hyper(const std::string& site) {
    const int64_t s = c_.hc_copies, n = 2 * s + s * s;
    // In the model's dtype: only so do the sizes of both releases come out as published.
    matrix("hc_" + site + "_fn", TensorPart::kHyper, n, s * c_.hidden);
    values("hc_" + site + "_base", TensorPart::kHyper, DType::kF32, {n}, {InitialValue::kNearlyOne, 0, 0.3f});
    values("hc_" + site + "_scale", TensorPart::kHyper, DType::kF32, {3}, {InitialValue::kBell, 0.3f, 0.05f});
  }

  void kda() {
    const int64_t d = c_.kda_dim, width = c_.kda_heads * d, h = c_.hidden;
    const TensorPart part = TensorPart::kKda;
    const std::string p = "self_attn.";
    for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) wide(p + name, part, width, h);
    const float tap = 1 / std::sqrt(static_cast<float>(c_.conv_width));
    for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
      values(p + name, part, DType::kF32, {width, 1, c_.conv_width}, {InitialValue::kBell, 0, tap});
    matrix(p + "f_a_proj.weight", part, d, h);
    matrix(p + "f_b_proj.weight", part, width, d);
    // Channels from those that forget within a token to those that hold for thousands: the bias shifts the sigmoid (or
    // softplus) by up to 8 towards 0.
    values(p + "dt_bias", part, DType::kF32, {width}, {InitialValue::kEven, -4, 4});
    values(p + "A_log", part, DType::kF32, {c_.kda_heads}, {InitialValue::kEven, 0, 0.4f});
    matrix(p + "b_proj.weight", part, c_.kda_heads, h);
    matrix(p + "g_a_proj.weight", part, d, h);
    matrix(p + "g_b_proj.weight", part, width, d);
    norm(p + "o_norm.weight", part, d);
    wide(p + "o_proj.weight", part, h, width);
  }

  void sparse(bool shared_index) {
    const int64_t h = c_.hidden, heads = c_.heads, d = c_.index_dim;
    const std::string p = "self_attn.";
    wide(p + "q_a_proj.weight", TensorPart::kMla, c_.q_rank, h);
    norm(p + "q_a_layernorm.weight", TensorPart::kMla, c_.q_rank);
    // Twice as steep: over thousands of tokens, flat attention would average every value away.
    wide(p + "q_b_proj.weight", TensorPart::kMla, heads * c_.qk, c_.q_rank, 2);
    wide(p + "kv_a_proj_with_mqa.weight", TensorPart::kMla, c_.latent, h);
    norm(p + "kv_a_layernorm.weight", TensorPart::kMla, c_.latent);
    matrix(p + "kv_b_proj.weight", TensorPart::kMla, heads * (c_.qk + c_.v), c_.latent);
    wide(p + "o_proj.weight", TensorPart::kMla, h, heads * c_.v);
    if (shared_index) return;
    const std::string i = p + "indexer.";
    matrix(i + "wq_b.weight", TensorPart::kIndexer, c_.index_heads * d, c_.q_rank);
    matrix(i + "wk.weight", TensorPart::kIndexer, d, h);
    norm(i + "k_norm.weight", TensorPart::kIndexer, d);
    bias(i + "k_norm.bias", TensorPart::kIndexer, d);
    matrix(i + "weights_proj.weight", TensorPart::kIndexer, c_.index_heads, h);
    matrix(i + "index_kpool_compress_gate", TensorPart::kIndexer, d, h);
    values(i + "index_kpool_compress_ape", TensorPart::kIndexer, DType::kF32, {c_.kpool, d},
           {InitialValue::kBell, 0, 0.5f});
  }

  void mlp(const std::string& p, TensorPart part, int64_t inner) {
    wide(p + "gate_proj.weight", part, inner, c_.hidden);
    wide(p + "up_proj.weight", part, inner, c_.hidden);
    wide(p + "down_proj.weight", part, c_.hidden, inner);
  }

  void moe() {
    matrix("mlp.gate.weight", TensorPart::kRouter, c_.experts, c_.hidden);
    values("mlp.gate.e_score_correction_bias", TensorPart::kRouter, DType::kF32, {c_.experts},
           {InitialValue::kBell, 0, 0.01f});
    for (int e = 0; e < c_.experts; ++e)
      mlp("mlp.experts." + std::to_string(e) + ".", TensorPart::kExperts, c_.expert_inner);
    if (c_.shared_experts)
      mlp("mlp.shared_experts.", TensorPart::kShared, int64_t{c_.expert_inner} * c_.shared_experts);
  }

  void layer(int i) {
    layer_ = i;
    place_ = "model.language_model.layers." + std::to_string(i) + ".";
    norm("input_layernorm.weight", TensorPart::kNorms, c_.hidden);
    norm("post_attention_layernorm.weight", TensorPart::kNorms, c_.hidden);
    hyper("attn");
    hyper("ffn");
    if (c_.layers[i].mixer == MixerKind::kKda)
      kda();
    else
      sparse(c_.layers[i].shared_index);
    if (c_.layers[i].moe)
      moe();
    else
      mlp("mlp.", TensorPart::kDense, c_.dense_inner);
  }

  void mtp(int i) {
    layer_ = i;
    place_ = "model.language_model.layers." + std::to_string(i) + ".";
    const int64_t h = c_.hidden;
    for (const char* name : {"enorm.weight", "hnorm.weight"}) norm(name, TensorPart::kMtp, h);
    matrix("eh_proj.weight", TensorPart::kMtp, h, 2 * h);
    for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      norm(name, TensorPart::kMtp, h);
    sparse(false);
    moe();
    norm("shared_head.norm.weight", TensorPart::kMtp, h);
  }

  void vision(const VisionConfig& v) {
    const TensorPart part = TensorPart::kVision;
    const int64_t h = v.hidden, out = v.out_hidden, patch = int64_t{v.channels} * v.temporal_patch * v.patch * v.patch;
    auto kernel = [&](const std::string& name, std::vector<int64_t> shape, int64_t in) {
      values(name, part, c_.dtype, std::move(shape), {InitialValue::kBell, 0, 1 / std::sqrt(static_cast<float>(in))});
    };
    place_ = "model.visual.";
    kernel("patch_embed.proj.weight", {h, v.channels, v.temporal_patch, v.patch, v.patch}, patch);
    bias("patch_embed.proj.bias", part, h);
    for (int b = 0; b < v.depth; ++b) {
      place_ = "model.visual.blocks." + std::to_string(b) + ".";
      norm("norm1.weight", part, h);
      norm("norm2.weight", part, h);
      auto biased = [&](const std::string& name, int64_t to, int64_t from) {
        matrix(name + ".weight", part, to, from);
        if (v.bias) bias(name + ".bias", part, to);
      };
      biased("attn.qkv", 3 * h, h);
      biased("attn.proj", h, h);
      norm("attn.q_norm.weight", part, h / v.heads);
      norm("attn.k_norm.weight", part, h / v.heads);
      biased("mlp.gate_proj", v.inner, h);
      biased("mlp.up_proj", v.inner, h);
      biased("mlp.down_proj", h, v.inner);
    }
    place_ = "model.visual.";
    norm("post_layernorm.weight", part, h);
    kernel("downsample.weight", {out, h, v.merge, v.merge}, h * v.merge * v.merge);
    bias("downsample.bias", part, out);
    matrix("merger.proj.weight", part, out, out);
    norm("merger.post_projection_norm.weight", part, out);
    bias("merger.post_projection_norm.bias", part, out);
    matrix("merger.gate_proj.weight", part, v.projection_inner, out);
    matrix("merger.up_proj.weight", part, v.projection_inner, out);
    matrix("merger.down_proj.weight", part, out, v.projection_inner);
  }

  const TextConfig& c_;
  const Config& config_;
  WeightFormat format_;
  std::string place_;
  int layer_ = -1;
  std::vector<TensorInfo> list_;
};

}  // namespace

int64_t TensorInfo::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

const char* weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain:
      return "plain";
    case WeightFormat::kBlockFp8:
      return "fp8";
    case WeightFormat::kRowInt8:
      return "w8a8-int8";
    case WeightFormat::kRowFp8:
      return "w8a8-fp8";
  }
  return "?";
}

const char* tensor_part_name(TensorPart part) {
  constexpr const char* kNames[kTensorParts] = {"embedding",         "lm_head", "kda",       "mla",    "indexer",
                                                "hyper_connections", "norms",   "dense_mlp", "router", "shared_experts",
                                                "routed_experts",    "mtp",     "vision"};
  return kNames[static_cast<int>(part)];
}

Result<WeightFormat> read_weight_format(const std::string& config_text, const std::string& file) {
  LATHE_ASSIGN(const nlohmann::json json, parse_json(config_text, file));
  JsonReader top(json, file);
  const nlohmann::json* found = top.object("quantization_config");
  LATHE_RETURN_IF_ERROR(top.status());
  if (!found) return WeightFormat::kPlain;
  JsonReader q(*found, file, "quantization_config");
  const std::string method = q.text("quant_method", "");
  if (method == "fp8") {
    const std::vector<int64_t> block = q.integers("weight_block_size", 1, 1 << 20);
    LATHE_RETURN_IF_ERROR(q.status());
    if (block != std::vector<int64_t>{kBlock, kBlock})
      return invalid("{}: quantization_config.weight_block_size: only [128, 128] is supported", file);
    return WeightFormat::kBlockFp8;
  }
  const std::string format = q.text("format", "");
  LATHE_RETURN_IF_ERROR(q.status());
  if (method == "compressed-tensors" && format == "int-quantized") return WeightFormat::kRowInt8;
  if (method == "compressed-tensors" && format == "float-quantized") return WeightFormat::kRowFp8;
  return invalid(
      "{}: quantization_config: method '{}' with format '{}' is not supported; expected fp8, or compressed-tensors "
      "with "
      "int-quantized or float-quantized",
      file, method, format);
}

std::vector<TensorInfo> list_tensors(const Config& config, WeightFormat format) { return Lister(config, format).run(); }

int64_t active_parameters(const Config& config, const std::vector<TensorInfo>& tensors) {
  int64_t active = 0, experts = 0;
  for (const TensorInfo& t : tensors) {
    if (t.scale || t.part == TensorPart::kMtp || t.part == TensorPart::kVision) continue;
    if (t.part == TensorPart::kExperts)
      experts += t.count();
    else if (t.part != TensorPart::kEmbedding || config.text.tied_embeddings)
      active += t.count();
  }
  return active + experts / config.text.experts * config.text.top_k;
}

}  // namespace lathe::glm5_next
