#include "model/glm5_next/inventory.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "model/tensor_spelling.h"

namespace lathe::glm5_next {

namespace {

std::string replaced(std::string name, std::string_view from, std::string_view to) {
  if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

// The tensors of the list that one of transformers' fused tensors stands for; else the name itself.
std::vector<std::string> parts_of(const std::string& name, const TextConfig& c) {
  std::vector<std::string> parts;
  if (name.ends_with("self_attn.conv1d.weight")) {
    for (const char* part : {"q_conv1d", "k_conv1d", "v_conv1d"}) parts.push_back(replaced(name, "conv1d", part));
  } else if (const bool up = name.ends_with("mlp.experts.gate_up_proj");
             up || name.ends_with("mlp.experts.down_proj")) {
    const std::string root = name.substr(0, name.rfind('.') + 1);
    for (int e = 0; e < c.experts; ++e)
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        if ((std::string_view(part) == "down_proj") != up)
          parts.push_back(fmt::format("{}{}.{}.weight", root, e, part));
  } else {
    parts.push_back(name);
  }
  return parts;
}

}  // namespace

Inventory take_inventory(const Config& config, const Checkpoint& checkpoint) {
  const std::vector<TensorInfo> list = list_tensors(config, WeightFormat::kPlain);
  std::unordered_map<std::string_view, const TensorInfo*> known;
  for (const TensorInfo& t : list) known[t.name] = &t;
  Inventory result;
  std::set<std::string, std::less<>> seen;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    std::string canonical = canonical_name(name);
    bool scale = false;
    for (std::string_view suffix : {"_scale_inv", "_scale"})
      if (canonical.ends_with(std::string(".weight").append(suffix))) {
        canonical.resize(canonical.size() - suffix.size());
        scale = true;
        break;
      }
    const std::vector<std::string> parts = parts_of(canonical, config.text);
    const auto it = known.find(parts[0]);
    if (it == known.end()) {
      result.unknown.push_back(name);
      continue;
    }
    TensorInfo t = *it->second;
    t.name = name, t.shape = entry.span.shape, t.dtype = entry.span.dtype, t.scale = scale;
    result.tensors.push_back(std::move(t));
    if (!scale) seen.insert(parts.begin(), parts.end());
  }
  const bool has_mtp = std::any_of(result.tensors.begin(), result.tensors.end(),
                                   [](const TensorInfo& t) { return t.part == TensorPart::kMtp; });
  for (const TensorInfo& t : list)
    if (!seen.contains(t.name) && (has_mtp || t.part != TensorPart::kMtp)) result.missing.push_back(t.name);
  return result;
}

}  // namespace lathe::glm5_next
