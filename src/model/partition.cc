#include "model/partition.h"

#include <charconv>

namespace lathe {

Result<Partition> Partition::parse(std::string_view text) {
  Partition p;
  const std::string_view kind = text.substr(0, text.find('='));
  if (kind == "tp")
    p.kind = Parallel::kTensor;
  else if (kind == "ep")
    p.kind = Parallel::kExpert;
  else if (kind == "cp")
    p.kind = Parallel::kContext;
  const std::string_view number = kind.size() < text.size() ? text.substr(kind.size() + 1) : "";
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), p.size);
  if (p.kind == Parallel::kNone || error != std::errc() || end != number.data() + number.size() || p.size < 1 ||
      p.size > 64)
    return invalid("--cut {}: expected tp=N, ep=N or cp=N with N from 1 to 64", text);
  return p;
}

const TensorCut* find_cut(std::string_view tensor, std::string_view mixer, const Partition& partition) {
  if (partition.size == 1) return nullptr;
  for (const TensorCut& cut : kTensorCuts)
    if (cut.by == partition.kind && tensor.ends_with(cut.tensor) && (cut.mixer.empty() || cut.mixer == mixer) &&
        (tensor.size() == cut.tensor.size() || tensor[tensor.size() - cut.tensor.size() - 1] == '.'))
      return &cut;
  return nullptr;
}

}  // namespace lathe
