#pragma once

#include "ops/kda_prefill/head_run.h"

namespace lathe {

// How a span's A is carried (kernels.md K6).
enum class KdaMapForm {
  kIncrement,  // the recurrence run from S = I with values zero: A·Diag(exp(G)) stays fp32, only what is added passes
               // products
  kProduct,    // A <- A·(map of each chunk): every chunk rounds all of A, and over many chunks it drifts
};

// The effect of a span of tokens on one head's state: S -> S·A + B. Composition is associative but not commutative.
class KdaSpanMap {
 public:
  // For spans of any head run by `run`, or by one of the same layer.
  KdaSpanMap(const KdaHeadRun& run, KdaMapForm form, Arena& arena);

  // What an empty span does: A = I, B = 0.
  void clear();
  // Appends the run's prepared tokens.
  void append(KdaHeadRun& run);
  // A as [kp, kp], padding zero, where `join` and other ranks want it.
  void store_a(float* a) const { store_matrix(a_, a); }

  float* b() const { return b_; }  // a tile
  static int64_t a_floats(const KdaHeadRun& run) { return int64_t{run.work.sizes.kp} * run.work.sizes.kp; }

 private:
  void set_identity(float* tile) const;
  void store_matrix(const float* tile, float* a) const;

  const KdaSizes sizes_;  // of a head whose values are as many as its keys
  const KdaMapForm form_;
  const int columns_;
  const int64_t block_;  // floats of a block of either tile
  int a_blocks_, b_blocks_;
  float *a_, *b_;
  // The product form's: the map of a chunk as a tile and as a matrix, and a block of its product.
  float *chunk_ = nullptr, *chunk_a_ = nullptr, *product_ = nullptr;
};

// state <- state·A + B for all blocks of a tile; leaves it in `b`.
void apply_kda_map(const KdaHeadRun& run, const float* a, const float* state, float* b);

}  // namespace lathe
