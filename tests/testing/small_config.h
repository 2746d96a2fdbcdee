#pragma once

#include <nlohmann/json.hpp>

namespace lathe::testing {

// config.json of a model with every kind of layer, small enough to be synthesised in a test: KDA and sparse layers, one
// that shares token sets, dense and MoE, grouped routing, MTP block, vision tower. Change fields as a test needs.
inline nlohmann::json small_config() {
  return nlohmann::json::parse(R"({
    "model_type": "glm5_next", "dtype": "bfloat16", "image_token_id": 94, "video_token_id": 95, "image_start_token_id": 90,
    "image_end_token_id": 91, "video_start_token_id": 92, "video_end_token_id": 93,
    "text_config": {
      "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96, "moe_intermediate_size": 32,
      "layer_types": ["linear_attention", "deepseek_sparse_attention", "deepseek_sparse_attention", "linear_attention"],
      "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "indexer_types": ["full", "full", "shared", "full"],
      "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 24,
      "index_n_heads": 4, "index_head_dim": 16, "index_topk": 16, "index_kpool": 4,
      "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
      "hc_mult": 4, "max_position_embeddings": 8192, "num_nextn_predict_layers": 1, "dtype": "bfloat16"},
    "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64,
      "projection_intermediate_size": 64}
  })");
}

}  // namespace lathe::testing
