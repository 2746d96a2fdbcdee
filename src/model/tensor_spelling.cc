#include "model/tensor_spelling.h"

#include <utility>

namespace lathe {

namespace {

constexpr std::string_view kLanguage = "model.language_model.";

// Module names of transformers, which an own conversion may have left in the file.
constexpr std::pair<std::string_view, std::string_view> kModuleNames[] = {
    {"attn_hc.", "hc_attn_"}, {"ffn_hc.", "hc_ffn_"}, {"self_attn.forget_gate.", "self_attn."}};

bool is_text_root(std::string_view rest) {
  return rest.starts_with("layers.") || rest.starts_with("embed_tokens.") || rest.starts_with("norm.");
}

}  // namespace

std::vector<std::string> tensor_spellings(const std::string& name) {
  std::vector<std::string> all = {name};
  if (std::string_view(name).starts_with(kLanguage)) {
    const std::string rest = name.substr(kLanguage.size());
    all.push_back("model." + rest);
    all.push_back("language_model." + rest);
    all.push_back("language_model.model." + rest);
    all.push_back(rest);
  } else if (std::string_view(name).starts_with("model.visual.")) {
    all.push_back(name.substr(6));
  } else if (name == "lm_head.weight") {
    all.push_back("language_model.lm_head.weight");
    all.push_back("model.lm_head.weight");
  }
  return all;
}

const std::pair<const std::string, Checkpoint::Entry>* find_tensor(const Checkpoint& checkpoint,
                                                                   const std::string& name) {
  if (auto it = checkpoint.tensors().find(name); it != checkpoint.tensors().end())
    return &*it;  // the usual case, at no cost
  for (const std::string& spelling : tensor_spellings(name))
    if (auto it = checkpoint.tensors().find(spelling); it != checkpoint.tensors().end()) return &*it;
  return nullptr;
}

std::string canonical_name(std::string_view name) {
  std::string_view rest = name;
  if (rest.starts_with("visual.")) return "model." + std::string(rest);
  if (rest.ends_with("lm_head.weight")) return "lm_head.weight";
  for (std::string_view root : {kLanguage, std::string_view("language_model.model."),
                                std::string_view("language_model."), std::string_view("model.")})
    if (rest.starts_with(root)) {
      rest.remove_prefix(root.size());
      break;
    }
  if (!is_text_root(rest)) return std::string(name);
  std::string canonical = std::string(kLanguage).append(rest);
  for (auto [module, disk] : kModuleNames)
    if (const size_t at = canonical.find(module); at != std::string::npos) canonical.replace(at, module.size(), disk);
  return canonical;
}

}  // namespace lathe
