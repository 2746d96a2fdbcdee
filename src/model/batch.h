#pragma once

#include <memory>
#include <vector>

#include "base/device.h"
#include "base/view.h"
#include "cache/sequence_memory.h"
#include "model/partition.h"

namespace lathe {

// What one forward pass shall do for one sequence.
struct Run {
  SequenceId sequence = -1;
  std::vector<int32_t> tokens;  // new tokens; -1: no token (a zero row)
  std::vector<int32_t>
      features;            // empty, or one a token: row of the batch's features that replaces its embedding, or -1
  bool in_ring = false;    // KDA by replay ring: decode or verification of drafts
  int logits_of_last = 0;  // logits are wanted for that many last rows; -1: for all
};

// Rows of one phase: consecutive in the batch.
struct PhaseRows {
  int64_t first_row = 0, rows = 0, first_sequence = 0;
  Ragged runs;  // starts count from first_row
  Array<const int32_t> slot;
  Array<const int32_t> before;  // position before this pass, over all ranks
};

// A ragged batch: token rows of many sequences back to back, on the device as one block. Sequences stand in the order
// prefill, decode, replay; `order[i]` is the index of the i-th in the caller's list.
// Under context parallelism a rank has its segment of each prefill run (`runs`), while keys and latents are gathered to
// all new rows (`fresh`).
struct Batch {
  static Result<std::unique_ptr<Batch>> build(Device& device, const std::vector<Run>& runs, SequenceMemory& memory,
                                              const Partition& partition);
  // The same with rows that begin at past[i] instead of the sequences' positions: for the MTP block, which lags.
  static Result<std::unique_ptr<Batch>> build_at(Device& device, const std::vector<Run>& runs,
                                                 const std::vector<int>& past, SequenceMemory& memory,
                                                 const Partition& partition);
  // This one anew, in the memory that it has: a step allocates nothing. `past` empty: the sequences' positions.
  Status rebuild(Device& device, const std::vector<Run>& runs, const std::vector<int>& past, SequenceMemory& memory,
                 const Partition& partition);

  std::vector<int> order;
  std::vector<int> local_rows, total_rows;  // by sequence, this rank's and all
  int64_t rows = 0, all_rows = 0;           // sums of the two
  bool cut = false;                         // context parallel: runs and fresh differ

  Array<const int32_t> token, feature;  // local rows
  Ragged runs, fresh;
  Array<const int32_t> slot, table, cursor;
  int64_t table_stride = 0;
  PhaseRows prefill, decode, replay;
  Array<const int32_t> logit_row;       // rows of the gathered hidden rows [all_rows], ascending
  std::vector<int> logits_by_sequence;  // how many of them each sequence has

  // Rows of sequence i that rank r holds.
  int segment_rows(int i, int r) const;
  int ranks = 1;

 private:
  // What goes to the device, on the host; kept for its capacity.
  struct Lists {
    std::vector<int32_t> token, feature, start, past, fresh_start, fresh_past, slot, table, logit_row;
    struct Phase {
      std::vector<int32_t> start, past, slot, before;
    };
    Phase phase[3];
    void clear();
  };
  Status begin(const std::vector<Run>& runs, SequenceMemory& memory, const Partition& partition);
  void add(const Run& run, int sequence, int position, SequenceMemory& memory, const Partition& partition);
  Status upload(Device& device, SequenceMemory& memory);

  Lists lists_;
  std::vector<int> positions_;
  bool any_feature_ = false;
  std::vector<int32_t> image_;  // of the block
  DeviceBuffer block_;
};

}  // namespace lathe
