#include "ops/registry.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lathe {

AnyOp add_workload();
AnyOp embedding_workload();
AnyOp hc_boundary_workload();
AnyOp hc_head_workload();
AnyOp index_select_workload();
AnyOp kda_decode_workload();
AnyOp kda_prefill_workload();
AnyOp kda_replay_workload();
AnyOp kda_scan_workload();
AnyOp linear_workload();
AnyOp lm_head_workload();
AnyOp mlp_workload();
AnyOp moe_workload();
AnyOp norm_workload();
AnyOp patch_merge_workload();
AnyOp sample_workload();
AnyOp sparse_mla_workload();
AnyOp vision_attention_workload();

std::span<const AnyOp> all_ops() {
  static const std::vector<AnyOp> ops = {
      add_workload(),         embedding_workload(),    hc_boundary_workload(),
      hc_head_workload(),     index_select_workload(), kda_decode_workload(),
      kda_prefill_workload(), kda_replay_workload(),   kda_scan_workload(),
      linear_workload(),      lm_head_workload(),      mlp_workload(),
      moe_workload(),         norm_workload(),         patch_merge_workload(),
      sample_workload(),      sparse_mla_workload(),   vision_attention_workload(),
  };
  return ops;
}

Status check_choice(std::string_view text) {
  LATHE_RETURN_IF_ERROR(Choices().add(text));
  const std::string_view op_name = text.substr(0, text.find('=')), variant = text.substr(op_name.size() + 1);
  std::vector<std::string> ops, variants;
  for (const AnyOp& op : all_ops()) {
    ops.push_back(op.name);
    if (op_name == "*" || op_name == op.name) variants.insert(variants.end(), op.variants.begin(), op.variants.end());
  }
  if (variants.empty()) return invalid("variant {}: no such operator; there are {}", text, fmt::join(ops, ", "));
  std::sort(variants.begin(), variants.end());
  variants.erase(std::unique(variants.begin(), variants.end()), variants.end());
  if (std::find(variants.begin(), variants.end(), variant) == variants.end())
    return invalid("variant {}: no such variant; there are {}", text, fmt::join(variants, ", "));
  return Status::ok();
}

Status add_choices(const std::vector<std::string>& texts, Choices& choices) {
  for (const std::string& text : texts) {
    LATHE_RETURN_IF_ERROR(check_choice(text));
    LATHE_RETURN_IF_ERROR(choices.add(text));
  }
  return Status::ok();
}

}  // namespace lathe
