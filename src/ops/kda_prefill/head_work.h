#pragma once

#include <vector>

#include "base/arena.h"
#include "ops/kda_prefill/kda_layer.h"
#include "ops/kda_prefill/steps.h"

namespace lathe {

// Consecutive rows of one sequence: batch row `begin` is position `past` of the sequence in `slot`.
struct KdaRun {
  int64_t slot = -1, begin = 0, end = 0, past = 0;
};

// One worker's scratch for one head at a time, and the way from raw rows to activated tokens.
class KdaHeadWork {
 public:
  // Up to `tokens` tokens are activated at once.
  KdaHeadWork(const KdaSteps& steps, const KdaLayer& layer, int tokens, Arena& arena);

  // All later calls are about this head.
  void take_head(int head);
  // Batch rows [row, row + tokens) of a run into `block`. Positions before the run are read from the slot's ring.
  void activate(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t row, int tokens);
  // Decay of tokens 0..n-1 of `block` applied to their keys and queries, into `vectors`.
  void decay_tokens(int n);

  float* state(const KdaMemory& memory, int64_t slot) const {
    return memory.state.f32(slot) + int64_t{head} * sizes.v * sizes.k;
  }
  int blocks() const { return sizes.vp / steps.columns; }
  int64_t block_floats() const { return int64_t{sizes.kp} * steps.columns; }

  const KdaSteps& steps;
  const KdaLayer& layer;
  KdaSizes sizes;
  int head = -1;
  KdaBlock block;
  KdaVectors* vectors;  // [tokens]

 private:
  int64_t taps_floats() const { return int64_t{layer.width} * (2 * sizes.kp + sizes.vp); }

  float* taps_;  // [heads], of those that were taken before
  std::vector<bool> have_taps_;
  float rate_ = 0;
  const void** raw_;  // [width - 1 + tokens]
};

// A chunk's matrices in scratch.
KdaChunk take_kda_chunk(const KdaSizes& sizes, Arena& arena);

// Normed and gated rows of y from o [rows, vp] of one head.
void store_kda_rows(const KdaHeadWork& work, const KdaRows& in, const Rows& y, int64_t row, int rows, const float* o);

// Starts fetching what store_kda_rows will touch. It lies rows apart, a few lines each, where hardware doesn't follow.
void fetch_kda_rows(const KdaHeadWork& work, const KdaRows& in, const Rows& y, int64_t row, int rows);

// Puts the run's raw rows before batch row `end` into the ring of `slot`: of all channels, or of a head's.
void push_kda_rows(const KdaRows& in, const KdaMemory& memory, const KdaRun& run, int64_t end, int64_t slot);
void push_kda_head(const KdaRows& in, const KdaMemory& memory, const KdaLayer& layer, int head, int64_t row,
                   int64_t slot, int64_t position);

void zero_kda_rows(const Rows& y, int64_t begin, int64_t end);

// While it lives, numbers below 2^-126 count as zero on this thread. A channel that decays would otherwise spend its
// last steps, or rest for ever, among them, and each product would cost a hundred cycles.
class FlushTinyNumbers {
 public:
  FlushTinyNumbers();
  ~FlushTinyNumbers();
  FlushTinyNumbers(const FlushTinyNumbers&) = delete;

 private:
  unsigned before_;
};

}  // namespace lathe
