#pragma once

#include <memory>

#include "cache/sequence_memory.h"
#include "model/batch.h"
#include "model/glm5_next/weights.h"
#include "model/step_observer.h"
#include "ops/op.h"

namespace lathe::glm5_next {

// What one forward pass runs in. Activations come from one arena a step and are gone with the next reset.
struct Step {
  OpContext op;
  const Batch& batch;
  SequenceMemory& memory;
  Arena& activations;
  StepObserver* observer = nullptr;
  Rows features;  // picture rows that batch.feature points into; or empty
};

struct StepOutput {
  Rows hidden;  // after the final norm: [all_rows, hidden]
  Rows logits;  // f32, [rows that asked for it, vocab]
};

// Token sets that sparse layers attend to: written by a full layer, read by itself and by shared layers after it.
struct Selection {
  Array<int32_t> selected, count;
  int width = 0;
};

// The text model: embedding, layers under hyper-connections, head; and the MTP block.
class TextTower {
 public:
  TextTower(TextConfig config, TextWeights weights, Partition partition, DType dtype)
      : config_(std::move(config)), weights_(std::move(weights)), partition_(partition), dtype_(dtype) {}

  // One pass over the batch: caches are written for every new row; positions advance only when the caller says so.
  Result<StepOutput> forward(const Step& step) const;

  // One layer alone, streams in, streams out: for judging a layer on given inputs.
  Status layer_alone(const Step& step, int layer, const Rows& streams_in, const Rows& streams_out) const;

  // The MTP block over the batch's rows: token[r] is the token after row r's position (-1 at position 0: its embedding
  // counts as zero), previous[r] the hidden row of that position. `hidden` is the block's normed output, which chained
  // drafts feed back.
  Result<StepOutput> mtp_forward(const Step& step, const Rows& previous) const;

  // Logits [row.count, vocab] of rows of a pass's `hidden`. Under a cut every rank calls it.
  Result<Rows> logits(OpContext op, const Rows& hidden, Array<const int32_t> row, Arena& arena) const;

  // Folds the replay rings of the sequences' slots into their states.
  Status fold(OpContext op, SequenceMemory& memory, const std::vector<SequenceId>& sequences) const;

  const TextConfig& config() const { return config_; }
  const TextWeights& weights() const { return weights_; }
  const Partition& partition() const { return partition_; }
  DType dtype() const { return dtype_; }

  // The sequence memory that this model needs. replay_length 0: no replay ring.
  MemoryShape memory_shape(int replay_length, int max_draft) const;
  // Bytes of activations that a batch of so many rows and logit rows takes at most.
  int64_t activation_bytes(int64_t rows, int64_t logit_rows) const;

 private:
  friend class ForwardPass;
  TextConfig config_;
  TextWeights weights_;
  Partition partition_;
  DType dtype_;
};

}  // namespace lathe::glm5_next
