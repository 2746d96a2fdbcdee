#include "model/glm5_next/config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/mapped_file.h"

namespace lathe::glm5_next {

using Json = nlohmann::json;

namespace {

constexpr int kMaxLayers = 1024, kMaxWidth = 1 << 20, kMaxHeads = 4096, kMaxVocab = 1 << 24, kMaxExperts = 65536;
constexpr int kMaxConfigBytes = 16 << 20;

int size(JsonReader& r, const char* field, int fallback, int low, int high) {
  return static_cast<int>(r.integer(field, fallback, low, high));
}

void read_kda(JsonReader& r, TextConfig& c) {
  const Json* nested = r.object("linear_attn_config");
  if (!nested) {
    c.kda_heads = size(r, "linear_num_heads", 64, 1, kMaxHeads);
    c.kda_dim = size(r, "linear_head_dim", 128, 1, 1024);
    c.conv_width = size(r, "linear_conv_kernel_dim", 4, 1, 64);
    // Absent: the default bound; an explicit null: none.
    c.gate_bound = static_cast<float>(r.number("linear_lower_bound", -5.0, -1000, 0));
    return;
  }
  JsonReader n(*nested, r.file(), r.path_of("linear_attn_config"));
  c.kda_heads = size(n, "num_heads", 64, 1, kMaxHeads);
  c.kda_dim = size(n, "head_dim", 128, 1, 1024);
  c.conv_width = size(n, "short_conv_kernel_size", 4, 1, 64);
  const bool safe_gate = n.boolean("safe_gate", true);
  c.gate_bound = static_cast<float>(n.number("gate_lower_bound", safe_gate ? -5.0 : 0.0, -1000, 0));
  r.adopt(n);
}

void read_layers(JsonReader& r, TextConfig& c, int count) {
  c.layers.resize(count);
  const std::vector<std::string> mixers = r.texts("layer_types"), ffns = r.texts("mlp_layer_types");
  if (!mixers.empty() && static_cast<int>(mixers.size()) != count)
    r.fail("layer_types", fmt::format("has {} entries for {} layers", mixers.size(), count));
  if (!ffns.empty() && static_cast<int>(ffns.size()) != count)
    r.fail("mlp_layer_types", fmt::format("has {} entries for {} layers", ffns.size(), count));
  if (!r.status().is_ok()) return;
  const int dense_first = size(r, "first_k_dense_replace", 3, 0, kMaxLayers);
  for (int i = 0; i < count; ++i) {
    LayerConfig& layer = c.layers[i];
    layer.mixer = i % 4 == 3 ? MixerKind::kSparse : MixerKind::kKda;
    if (!mixers.empty()) {
      if (mixers[i] == "linear_attention")
        layer.mixer = MixerKind::kKda;
      else if (mixers[i] == "deepseek_sparse_attention" || mixers[i] == "full_attention")
        layer.mixer = MixerKind::kSparse;
      else
        r.fail("layer_types",
               fmt::format("entry {} is '{}'; expected linear_attention, deepseek_sparse_attention or full_attention",
                           i, mixers[i]));
    }
    layer.moe = i >= dense_first;
    if (!ffns.empty()) {
      if (ffns[i] != "dense" && ffns[i] != "sparse")
        r.fail("mlp_layer_types", fmt::format("entry {} is '{}'; expected dense or sparse", i, ffns[i]));
      layer.moe = ffns[i] == "sparse";
    }
  }
}

// indexer_types; else index_topk_pattern; else index_topk_freq and index_skip_topk_offset (model.md 1.1).
void read_index_sharing(JsonReader& r, TextConfig& c, const Json& text) {
  const int count = static_cast<int>(c.layers.size());
  std::vector<bool> shared(count, false);
  std::vector<std::string> types = r.texts("indexer_types");
  const char* field = "indexer_types";
  if (types.empty() && r.has("index_topk_pattern")) {
    field = "index_topk_pattern";
    if (const Json& pattern = text["index_topk_pattern"]; pattern.is_string())
      for (char letter : pattern.get<std::string>()) types.push_back(std::string(1, letter));
    else
      types = r.texts("index_topk_pattern");
  }
  if (!types.empty()) {
    if (static_cast<int>(types.size()) != count)
      return r.fail(field, fmt::format("has {} entries for {} layers", types.size(), count));
    for (int i = 0; i < count; ++i) {
      if (types[i] == "shared" || types[i] == "S")
        shared[i] = true;
      else if (types[i] != "full" && types[i] != "F")
        return r.fail(field, fmt::format("entry {} is '{}'; expected full or shared", i, types[i]));
    }
  } else {
    const int freq = size(r, "index_topk_freq", 1, 0, kMaxLayers),
              offset = size(r, "index_skip_topk_offset", 2, 0, kMaxLayers);
    for (int i = 0; i < count; ++i) shared[i] = std::max(i - offset + 1, 0) % std::max(freq, 1) != 0;
  }
  for (int i = 0; i < count; ++i) {
    LayerConfig& layer = c.layers[i];
    if (layer.mixer != MixerKind::kSparse || !shared[i]) continue;
    if (i == 0 || c.layers[i - 1].mixer != MixerKind::kSparse)
      return r.fail(field,
                    fmt::format("layer {} shares the token sets of the layer before, which is not a sparse layer", i));
    layer.shared_index = true;
  }
}

void only(JsonReader& r, const char* field, const std::string& value) {
  if (r.has(field) && r.text(field, "") != value)
    r.fail(field, fmt::format("is '{}'; only '{}' is supported", r.text(field, ""), value));
}

void refuse_unsupported(JsonReader& r) {
  only(r, "hidden_act", "silu");
  only(r, "scoring_func", "sigmoid");
  only(r, "topk_method", "noaux_tc");
  if (!r.boolean("mla_use_nope", true)) r.fail("mla_use_nope", "must be true: the model has no positions");
  if (r.integer("moe_layer_freq", 1, 0, kMaxLayers) != 1)
    r.fail("moe_layer_freq", "must be 1; mlp_layer_types says which layers have experts");
  for (const char* field : {"rope_scaling", "sliding_window"})
    if (r.has(field)) r.fail(field, "must be null: the model has no positions and no windows");
  if (r.integer("qk_rope_head_dim", 0, 0, kMaxWidth) != 0)
    r.fail("qk_rope_head_dim", "must be 0: the model has no positions");
  if (!r.boolean("index_kpool_compress", true))
    r.fail("index_kpool_compress", "must be true: only pooling by the learned gate exists");
  if (!r.boolean("mhc", true)) r.fail("mhc", "must be true: models without hyper-connections are not supported");
  if (r.boolean("attention_bias", false)) r.fail("attention_bias", "must be false in the text part");
}

DType read_dtype(JsonReader& r) {
  const std::string name = r.text(r.has("dtype") ? "dtype" : "torch_dtype", "bfloat16");
  if (name == "float32") return DType::kF32;
  if (name != "bfloat16" && name != "float16")
    r.fail("dtype", fmt::format("is '{}'; expected float32, bfloat16 or float16", name));
  return DType::kBF16;
}

TextConfig read_text(JsonReader& r, const Json& text) {
  TextConfig c;
  c.vocab = size(r, "vocab_size", 154880, 1, kMaxVocab);
  c.hidden = size(r, "hidden_size", 4096, 1, kMaxWidth);
  c.dense_inner = size(r, "intermediate_size", 12288, 1, kMaxWidth);
  c.expert_inner = size(r, "moe_intermediate_size", 2048, 1, kMaxWidth);
  c.experts = size(r, r.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts", 288, 1, kMaxExperts);
  c.shared_experts = size(r, "n_shared_experts", 1, 0, 64);
  c.top_k = size(r, "num_experts_per_tok", 8, 1, c.experts);
  c.groups = size(r, "n_group", 1, 1, c.experts);
  c.top_groups = size(r, "topk_group", 1, 1, c.groups);
  c.normalise_top_k = r.boolean("norm_topk_prob", true);
  c.routed_scale = static_cast<float>(r.number("routed_scaling_factor", 2.5, -1e6, 1e6));
  c.swiglu_limit = static_cast<float>(r.number("swiglu_limit", 10.0, 0, 1e30));
  c.heads = size(r, "num_attention_heads", 64, 1, kMaxHeads);
  if (size(r, "num_key_value_heads", c.heads, 1, kMaxHeads) != c.heads)
    r.fail("num_key_value_heads", "must equal num_attention_heads");
  c.q_rank = size(r, "q_lora_rank", 1536, 1, kMaxWidth);
  c.latent = size(r, "kv_lora_rank", 512, 1, kMaxWidth);
  c.qk = size(r, "qk_nope_head_dim", 256, 1, 4096);
  c.v = size(r, "v_head_dim", 256, 1, 4096);
  c.index_heads = size(r, "index_n_heads", 32, 1, kMaxHeads);
  c.index_dim = size(r, "index_head_dim", 128, 1, 4096);
  c.index_top_k = size(r, "index_topk", 2048, 1, 1 << 20);
  c.kpool = size(r, "index_kpool", 16, 1, 1024);
  if (c.index_top_k % c.kpool)
    r.fail("index_topk", fmt::format("{} must be divisible by index_kpool {}", c.index_top_k, c.kpool));
  c.always_tail = r.boolean("index_kpool_always_select_tail", true);
  c.hc_copies = size(r, "hc_mult", 4, 1, 16);
  c.hc_iters = size(r, "hc_sinkhorn_iters", 20, 1, 1000);
  c.hc_eps = static_cast<float>(r.number("hc_eps", 1e-6, 0, 1));
  c.rms_eps = static_cast<float>(r.number("rms_norm_eps", 1e-5, 0, 1));
  c.max_positions = size(r, "max_position_embeddings", 1048576, 1, 1 << 30);
  c.tied_embeddings = r.boolean("tie_word_embeddings", false);
  c.mtp_layers = size(r, "num_nextn_predict_layers", 0, 0, 1);
  c.dtype = read_dtype(r);
  if (c.experts % c.groups)
    r.fail("n_group", fmt::format("{} must divide n_routed_experts {}", c.groups, c.experts));
  else if (c.top_k > c.experts / c.groups * c.top_groups)
    r.fail("num_experts_per_tok",
           fmt::format("{} is more than the experts of topk_group {} groups", c.top_k, c.top_groups));
  refuse_unsupported(r);
  read_kda(r, c);
  if (text.contains("linear_lower_bound") && text["linear_lower_bound"].is_null() && !r.has("linear_attn_config"))
    c.gate_bound = 0;
  read_layers(r, c, size(r, "num_hidden_layers", 45, 1, kMaxLayers));
  if (r.status().is_ok()) read_index_sharing(r, c, text);
  return c;
}

VisionConfig read_vision(JsonReader& r) {
  VisionConfig c;
  c.depth = size(r, "depth", 24, 1, kMaxLayers);
  c.hidden = size(r, "hidden_size", 1024, 1, kMaxWidth);
  c.heads = size(r, "num_heads", 16, 1, kMaxHeads);
  c.inner = size(r, "intermediate_size", 4096, 1, kMaxWidth);
  c.out_hidden = size(r, "out_hidden_size", 1536, 1, kMaxWidth);
  c.projection_inner = size(r, "projection_intermediate_size", 10240, 1, kMaxWidth);
  c.patch = size(r, "patch_size", 14, 1, 256);
  c.temporal_patch = size(r, "temporal_patch_size", 2, 1, 16);
  c.merge = size(r, "spatial_merge_size", 2, 1, 16);
  c.channels = size(r, "in_channels", 3, 3, 3);
  c.bias = r.boolean("attention_bias", true);
  only(r, "hidden_act", "silu");
  c.rms_eps = static_cast<float>(r.number("rms_norm_eps", 1e-5, 0, 1));
  c.swiglu_limit = static_cast<float>(r.number("swiglu_limit", 10.0, 0, 1e30));
  if (const Json* rope = r.object("rope_parameters")) {
    JsonReader n(*rope, r.file(), r.path_of("rope_parameters"));
    only(n, "rope_type", "axial");
    c.theta = static_cast<float>(n.number("rope_theta", 10000, 1, 1e12));
    r.adopt(n);
  }
  if (c.hidden % c.heads || (c.hidden / c.heads) % 4)
    r.fail("num_heads", "must divide hidden_size into heads of a multiple of 4");
  return c;
}

std::vector<int> as_ints(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

}  // namespace

int TextConfig::sparse_layers() const {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.mixer == MixerKind::kSparse; }));
}

Result<Config> Config::parse(const std::string& source, const std::string& file) {
  LATHE_ASSIGN(const Json json, parse_json(source, file));
  JsonReader top(json, file);
  LATHE_RETURN_IF_ERROR(top.status());
  Config c;
  c.file = file;
  const std::string type = top.text("model_type", "");
  if (type != "glm5_next" && type != "glm5_next_text")
    return invalid("{}: model_type: '{}' is not supported; expected glm5_next or glm5_next_text", file, type);
  const Json* nested = top.object("text_config");
  LATHE_RETURN_IF_ERROR(top.status());
  JsonReader text(nested ? *nested : json, file, nested ? "text_config" : "");
  c.text = read_text(text, nested ? *nested : json);
  LATHE_RETURN_IF_ERROR(text.status());
  if (const Json* vision = top.object("vision_config")) {
    JsonReader v(*vision, file, "vision_config");
    c.vision = read_vision(v);
    LATHE_RETURN_IF_ERROR(v.status());
    if (c.vision->out_hidden != c.text.hidden)
      return corrupt("{}: vision_config.out_hidden_size: {} must equal the text hidden_size {}", file,
                     c.vision->out_hidden, c.text.hidden);
  }
  auto token = [&](const char* field) { return size(top, field, -1, -1, kMaxVocab); };
  c.image_token = token("image_token_id"), c.video_token = token("video_token_id");
  c.image_start = token("image_start_token_id"), c.image_end = token("image_end_token_id");
  c.video_start = token("video_start_token_id"), c.video_end = token("video_end_token_id");
  c.pad_token = size(text, "pad_token_id", -1, -1, kMaxVocab);
  c.eos = as_ints(text.integers("eos_token_id", -1, kMaxVocab));
  LATHE_RETURN_IF_ERROR(top.status());
  LATHE_RETURN_IF_ERROR(text.status());
  return c;
}

Result<Config> Config::read(const std::string& dir) {
  const std::string path = dir + "/config.json";
  LATHE_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  LATHE_ASSIGN(Config c, parse(text, path));
  const std::string generation = dir + "/generation_config.json";
  if (std::filesystem::exists(generation)) {
    LATHE_ASSIGN(const Json json, read_json_file(generation, kMaxConfigBytes));
    JsonReader r(json, generation);
    if (r.has("eos_token_id")) c.eos = as_ints(r.integers("eos_token_id", -1, kMaxVocab));
    LATHE_RETURN_IF_ERROR(r.status());
  }
  return c;
}

}  // namespace lathe::glm5_next
