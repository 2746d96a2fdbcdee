#pragma once

#include "model/glm5_next/text_tower.h"

// What a pass through the text tower must read and compute, counted from configuration and weights, not from what an
// operator does: the numerators of a model's roofs.

namespace lathe {

// Multiplications and additions of matrix products, by what they are multiplied in.
struct ProductFlop {
  double fp32 = 0, bf16 = 0, int8 = 0;
  double all() const { return fp32 + bf16 + int8; }
};

struct ModelWork {
  int64_t weight_bytes = 0;        // that one token's pass reads: every weight once, top_k experts a MoE layer, no MTP
  int64_t state_update_bytes = 0;  // KDA states in and out
  int64_t expert_bytes = 0;        // of all routed experts
  double expert_share = 0;         // of them that one row reads
  ProductFlop row;                 // linear, mlp and moe, per row
  ProductFlop logit_row;           // lm_head, per row of logits

  // What isn't a matrix product of a row by a weight that `row` counts: attention in latents, index scores, KDA states
  // token by token, mixing of residual streams; in fp32, per row at a context length.
  double mixing_flop(int64_t context) const;
  // Of a pass of so many rows, as many experts as rows that choose evenly would take.
  int64_t weight_bytes_of(int64_t rows) const;
  // Latents and pooled keys that one token reads at a context length.
  int64_t context_bytes(int64_t context) const;

  int64_t index_bytes_per_position = 0, latent_bytes_per_position = 0;  // over all layers
  int64_t most_positions = 0;                                           // that a sparse layer attends to
  double mixing = 0, mixing_per_position = 0, mixing_per_attended = 0;  // of mixing_flop
};

ModelWork model_work(const glm5_next::TextTower& tower);

}  // namespace lathe
