#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_census.h"
#include "model/checkpoint.h"
#include "model/glm5_next/memory_plan.h"
#include "model/glm5_next/text_tower.h"
#include "ops/op_probe.h"

namespace lathe {

struct ExecutorOptions {
  DType dtype = DType::kBF16;  // of activations and caches
  int replay_length = 0;       // 0: no replay ring
  int max_draft = 0;
  int slots = 1;        // sequences at once
  int pages = 0;        // cache pages for all of them
  int checkpoints = 0;  // frozen sequences: slots for a prefix cache
  Partition partition;
  Choices choices;
  OpObserver* observer = nullptr;  // sees every operator call of the passes
  Recorder* probes = nullptr;      // outlives the executor
};

// Runs forward passes over batches of runs and is the only one that moves sequences forward: after a pass has
// succeeded, once. One thread. What is virtual is so for tests that plant a fault.
class Executor {
 public:
  virtual ~Executor() = default;
  // device, pool and checkpoint outlive the executor; comm is set when the partition has more than one rank.
  static Result<std::unique_ptr<Executor>> create(const glm5_next::Config& config, const Checkpoint& checkpoint,
                                                  Device& device, ThreadPool& pool, Communicator* comm,
                                                  const ExecutorOptions& options);

  // One pass. Pages are reserved, rings folded where a run without ring needs it, positions advanced by all rows.
  // The output is valid until the next call. Rows in a ring: advance by fewer through accept().
  virtual Result<glm5_next::StepOutput> run(const std::vector<Run>& runs, StepObserver* observer = nullptr,
                                            Rows features = {});

  // Logits of rows [first, first + count) of that output's hidden rows: for callers that want more rows than limits()
  // has room for. Valid until the next call.
  Result<Rows> logits(const Rows& hidden, int64_t first, int64_t count);

  // The MTP block over rows [position, position + tokens) of each run; see TextTower::mtp_forward.
  // `previous` is [rows of all runs in order, hidden]. `past`: where each run's rows begin.
  Result<glm5_next::StepOutput> run_mtp(const std::vector<Run>& runs, const std::vector<int>& past,
                                        const Rows& previous);

  // Of the rows of the last run of `sequence` in its ring, the first `count` are kept; the rest is rolled back. Before
  // the next pass of any kind.
  Status accept(SequenceId sequence, int rows_run, int count);

  // The last run()'s hidden rows of `sequence`: [rows, hidden]. Valid until the next pass of any kind. Of models with
  // an MTP block; their last one is also kept in the sequence's memory (SequenceMemory::last_hidden).
  Rows hidden_of_last_run(SequenceId sequence) const;

  virtual Status fold(const std::vector<SequenceId>& sequences);

  // Other variants from now on; returns those before.
  Choices use(Choices choices) { return std::exchange(options_.choices, std::move(choices)); }
  const Choices& choices() const { return options_.choices; }

  // Returns when nothing that was begun here is still running, with the threads of the process at that moment.
  Result<std::vector<LiveThread>> quiesce();

  SequenceMemory& memory() { return *memory_; }
  const glm5_next::TextTower& tower() const { return *tower_; }
  const glm5_next::PassLimits& limits() const { return limits_; }
  OpContext op_context();
  Device& device() { return device_; }
  // The index in the last run() call's list of the i-th sequence in its output, and its logit rows.
  const Batch& last_batch() const { return *batch_; }
  int64_t activation_bytes() const { return activations_.capacity_bytes(); }
  int64_t scratch_peak_bytes() const { return scratch_.peak_bytes(); }

 protected:
  Executor(Device& device, ThreadPool& pool, Communicator* comm) : device_(device), pool_(pool), comm_(comm) {}
  Status load(const glm5_next::Config& config, const Checkpoint& checkpoint, const ExecutorOptions& options);

 private:
  Status make_room(int64_t rows, int64_t logit_rows);
  void keep_hidden(const std::vector<Run>& runs, const Rows& hidden);
  void copy_row(const Rows& to, const Rows& from);

  Device& device_;
  ThreadPool& pool_;
  Communicator* comm_;
  ExecutorOptions options_;
  std::unique_ptr<OpProbe> op_probe_;  // null: probes are off
  std::unique_ptr<glm5_next::TextTower> tower_;
  std::unique_ptr<SequenceMemory> memory_;
  glm5_next::PassLimits limits_;
  Arena activations_, scratch_, logits_;
  DeviceBuffer row_numbers_;  // 0, 1, 2, ...
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>();
  std::vector<std::pair<SequenceId, Rows>> hidden_;  // of the last run()
  int64_t step_ = 0;
};

}  // namespace lathe
