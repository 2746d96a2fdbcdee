#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace lathe {

// How wide a model's sequence memory is, and for which layers. `model` fills it in; `cache` knows nothing else of a
// model.
struct MemoryShape {
  DType rows = DType::kF32;  // of latents, pooled keys, open rows and convolution inputs
  int page_tokens = 64;      // a multiple of kpool
  int max_draft = 0;         // rows of one speculative step beyond the first

  // Sparse layers, the MTP block's last if there is one.
  int latent = 0, index_dim = 0, kpool = 1;
  std::vector<bool> has_index;  // one a sparse layer; a shared layer has no index pages
  bool mtp = false;

  // KDA layers. State and replay gates are f32.
  int kda_layers = 0, kda_heads = 0, kda_k = 0, kda_v = 0, conv_width = 1;
  int replay_length = 0;       // records of the replay ring; 0: none
  DType replay = DType::kF32;  // of its keys and d

  int hidden = 0;  // the last hidden row is kept for the MTP block; 0: not

  int sparse_layers() const { return static_cast<int>(has_index.size()); }
  int64_t kda_channels() const { return int64_t{kda_heads} * (2 * kda_k + kda_v); }
  // Rings hold what the next token needs and every row that may yet be rolled back.
  int rollback_rows() const { return replay_length > max_draft ? replay_length : max_draft; }
  int conv_ring() const { return conv_width - 1 + rollback_rows() > 0 ? conv_width - 1 + rollback_rows() : 1; }
  int open_ring() const { return kpool + rollback_rows(); }
};

// Smallest multiple of the pool size with at least 64 tokens.
// 64: the sparse kernel gathers 64 rows a step, so a page never straddles two; 128 left more of short chats' last page
// empty.
constexpr int page_tokens_for(int kpool) { return (64 + kpool - 1) / kpool * kpool; }

}  // namespace lathe
