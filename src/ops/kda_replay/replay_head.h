#pragma once

#include <vector>

#include "ops/kda_prefill/head_work.h"
#include "ops/kda_replay/kda_replay.h"

namespace lathe {

// One head of one slot at a time: its checkpoint is read once for all rows of a step; records are few and short.
class KdaReplayHead {
 public:
  KdaReplayHead(const KdaSteps& steps, const KdaReplayArgs& args, Arena& arena);

  // Folds all committed records.
  void flush(int64_t slot, int head);
  // A step's rows from raw projections to y. Its convolution's ring is filled as well.
  void step(int head, const KdaRun& run);
  // The same from `rows` activated tokens in work.block, the first of which is position `past`; o in o().
  void step_tokens(int64_t slot, int head, int64_t past, int rows);

  const float* o() const { return products_; }  // [rows, vp]
  KdaHeadWork work;

 private:
  void take(int64_t slot, int head, int committed);
  void read_gate(int j);
  bool is_deep(const float* gate) const;
  void* at(const Pool& pool, int j, int width) const;
  const float* scaled_keys(const float* G, const float* exp_G);
  void fold();
  void forget_records();
  void store_record(int j) const;
  void read_back(int j);
  bool accumulate_gates(int rows);
  void multiply_state(int rows);
  void run_row(int r);

  const KdaReplayArgs& args_;
  const KdaSizes sizes_;
  int64_t slot_ = -1;
  int head_ = -1, records_ = 0;
  bool deep_ = false;  // some record's running log gate lies too low for its key to be pre-decayed by all of it
  float* state_ = nullptr;
  float *keys_, *scaled_, *gates_, *d_;  // the records
  float *running_, *decayed_;            // of this step's rows: G; exp(G)·k and exp(G)·q
  float* products_;                      // S0 times the latter; from the front, o of finished rows
  float *weights_, *row_;
  std::vector<const float*> inputs_;  // rows of decayed_
  std::vector<float*> outputs_;       // rows of products_
};

}  // namespace lathe
