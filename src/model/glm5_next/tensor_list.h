#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/glm5_next/config.h"

// The tensors of a glm5_next checkpoint, from its configuration alone (model.md 12): the one list that synth writes,
// quantize converts and inspect counts.
namespace lathe::glm5_next {

// How the wide matrices are stored. Everything else is the model's dtype, or f32 (12.2).
enum class WeightFormat {
  kPlain,     // the model's dtype
  kBlockFp8,  // e4m3 with `X.weight_scale_inv` for blocks of 128 x 128: the released layout
  kRowInt8,   // W8A8: int8 with `X.weight_scale` [out, 1]
  kRowFp8,    // W8A8: e4m3 with `X.weight_scale` [out, 1]
};
const char* weight_format_name(WeightFormat format);
// What config.json's quantization_config announces; absent: kPlain. `file` is for messages.
Result<WeightFormat> read_weight_format(const std::string& config_text, const std::string& file);

// Sizes are told by these parts, as in model.md 12.4.
enum class TensorPart {
  kEmbedding,
  kLmHead,
  kKda,
  kMla,
  kIndexer,
  kHyper,
  kNorms,
  kDense,
  kRouter,
  kShared,
  kExperts,
  kMtp,
  kVision
};
inline constexpr int kTensorParts = 13;
const char* tensor_part_name(TensorPart part);

// What a random checkpoint puts there; chosen so that deep stacks keep activations near 1 and no selection degenerates.
struct InitialValue {
  enum Kind {
    kBell,       // middle + spread · (bell-shaped, deviation 1, never beyond ±kBellEnd)
    kEven,       // evenly spread over middle ± spread
    kNearlyOne,  // as kBell, plus 2 on the diagonal of a hyper-connection's mixing part: streams mostly keep to
                 // themselves
  } kind = kBell;
  float middle = 0, spread = 1;
  static constexpr float kBellEnd = 3.4642f;
};

struct TensorInfo {
  std::string name;  // as on disk
  std::vector<int64_t> shape;
  DType dtype = DType::kBF16;
  TensorPart part = TensorPart::kNorms;
  int layer = -1;                   // the MTP block's is the number of layers; -1: in none
  InitialValue initial;             // of the values, also where they are stored with scales
  bool wide = false;                // a matrix of which 8-bit forms exist, plain format or not
  bool scale = false;               // belongs to the tensor before it in the list; not a parameter
  int block_out = 0, block_in = 0;  // with scales: what one of them covers

  int64_t count() const;
  int64_t bytes() const { return count() * dtype_bytes(dtype); }
};

// In the order of the model: embedding, layers, MTP block, norm, head, vision tower; scales right after what they
// scale. kBlockFp8 takes the wide matrices of the released FP8 column (12.3: KDA stays), the W8A8 formats all of them.
std::vector<TensorInfo> list_tensors(const Config& config, WeightFormat format);

// Parameters that one token's text passes use: top_k routed experts, no MTP, no vision, of the embedding no row.
int64_t active_parameters(const Config& config, const std::vector<TensorInfo>& tensors);

}  // namespace lathe::glm5_next
