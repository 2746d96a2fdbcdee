#pragma once

#include "testing/small_config.h"

namespace lathe::testing {

// config.json of a text model of about so many million bytes of weights, nearly all of them in experts: every kind of
// layer, widths as real models of that size have them. W8A8: as int8 with a scale a row.
inline nlohmann::json sized_config(int megabytes, bool w8a8) {
  nlohmann::json c = small_config();
  c.erase("vision_config");
  nlohmann::json& t = c["text_config"];
  const int hidden = megabytes < 150 ? 256 : megabytes < 400 ? 512 : 1024, inner = hidden / 2, moe_layers = 3;
  const int expert_bytes = 3 * hidden * inner * (w8a8 ? 1 : 2);
  t["vocab_size"] = 1024, t["hidden_size"] = hidden, t["intermediate_size"] = 4 * hidden;
  t["moe_intermediate_size"] = inner, t["n_group"] = 1, t["topk_group"] = 1, t["num_experts_per_tok"] = 8;
  t["n_routed_experts"] = megabytes * 920'000LL / (moe_layers * expert_bytes);
  t["q_lora_rank"] = hidden / 2, t["kv_lora_rank"] = hidden / 2;
  t["qk_nope_head_dim"] = hidden / 8, t["v_head_dim"] = hidden / 8;
  t["index_n_heads"] = 8, t["index_head_dim"] = 64, t["index_topk"] = 512;
  t["linear_attn_config"]["head_dim"] = hidden / 8;
  t["num_nextn_predict_layers"] = 0;
  if (w8a8) c["quantization_config"] = {{"quant_method", "compressed-tensors"}, {"format", "int-quantized"}};
  return c;
}

}  // namespace lathe::testing
