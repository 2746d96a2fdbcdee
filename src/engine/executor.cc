#include "engine/executor.h"

#include <algorithm>
#include <numeric>

#include "model/glm5_next/inventory.h"

namespace lathe {

namespace {
// Address space for what operators need within a call; touched as it is used.
constexpr int64_t kScratchBytes = int64_t{64} << 30;
}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const glm5_next::Config& config, const Checkpoint& checkpoint,
                                                   Device& device, ThreadPool& pool, Communicator* comm,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<Executor> e(new Executor(device, pool, comm));
  e->options_ = options;
  e->limits_ = glm5_next::pass_limits(config, glm5_next::take_inventory(config, checkpoint).tensors, options.dtype,
                                      options.partition);
  LATHE_ASSIGN(glm5_next::TextWeights weights,
               glm5_next::load_text_weights(config.text, checkpoint, device, options.partition));
  e->tower_ = std::make_unique<glm5_next::TextTower>(config.text, std::move(weights), options.partition, options.dtype);
  LATHE_ASSIGN(e->memory_,
               SequenceMemory::create(device, e->tower_->memory_shape(options.replay_length, options.max_draft),
                                      options.slots, options.pages));
  if (device.shares_host_memory()) {
    LATHE_ASSIGN(e->scratch_, Arena::create(device, kScratchBytes));
  }
  return e;
}

OpContext Executor::op_context() {
  return {.device = &device_,
          .pool = &pool_,
          .scratch = &scratch_,
          .comm = comm_,
          .choices = &options_.choices,
          .observer = options_.observer,
          .address = {step_, -1}};
}

Status Executor::make_room(int64_t rows, int64_t logit_rows) {
  const int64_t bytes = tower_->activation_bytes(rows, logit_rows);
  if (bytes > activations_.capacity_bytes()) {
    activations_ = Arena();  // the old one first: never both
    LATHE_ASSIGN(activations_, Arena::create(device_, bytes));
  }
  activations_.reset();
  return Status::ok();
}

Result<glm5_next::StepOutput> Executor::run(const std::vector<Run>& runs, StepObserver* observer, Rows features) {
  std::vector<SequenceId> to_fold;
  for (const Run& r : runs) {
    if (!r.in_ring && !memory_->ring_is_empty(r.sequence)) to_fold.push_back(r.sequence);
    LATHE_RETURN_IF_ERROR(
        memory_->reserve(r.sequence, memory_->position(r.sequence) + static_cast<int>(r.tokens.size())));
  }
  LATHE_RETURN_IF_ERROR(fold(to_fold));
  LATHE_ASSIGN(batch_, Batch::build(device_, runs, *memory_, options_.partition));
  LATHE_RETURN_IF_ERROR(make_room(batch_->all_rows, batch_->logit_row.count));
  ++step_;
  const glm5_next::Step step{op_context(), *batch_, *memory_, activations_, observer, features};
  LATHE_ASSIGN(glm5_next::StepOutput out, tower_->forward(step));
  for (const Run& r : runs) {
    const int rows = static_cast<int>(r.tokens.size());
    if (r.in_ring)
      memory_->advance_in_ring(r.sequence, rows, rows);
    else
      memory_->advance(r.sequence, rows);
  }
  return out;
}

Result<Rows> Executor::logits(const Rows& hidden, int64_t first, int64_t count) {
  if (const int64_t bytes = tower_->activation_bytes(0, count); bytes > logits_.capacity_bytes()) {
    logits_ = Arena();
    LATHE_ASSIGN(logits_, Arena::create(device_, bytes));
    std::vector<int32_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    LATHE_ASSIGN(row_numbers_, DeviceBuffer::allocate(device_, count * 4));
    device_.to_device(row_numbers_.as(), numbers.data(), count * 4);
  }
  logits_.reset();
  return tower_->logits(op_context(), hidden.slice(first, count), {row_numbers_.as<const int32_t>(), count}, logits_);
}

Result<glm5_next::StepOutput> Executor::run_mtp(const std::vector<Run>& runs, const std::vector<int>& past,
                                                const Rows& previous) {
  LATHE_ASSIGN(batch_, Batch::build_at(device_, runs, past, *memory_, options_.partition));
  LATHE_RETURN_IF_ERROR(make_room(batch_->all_rows, batch_->logit_row.count));
  const glm5_next::Step step{op_context(), *batch_, *memory_, activations_, nullptr, {}};
  return tower_->mtp_forward(step, previous);
}

Status Executor::accept(SequenceId sequence, int rows_run, int count) {
  return memory_->rollback(sequence, memory_->position(sequence) - rows_run + count);
}

Status Executor::fold(const std::vector<SequenceId>& sequences) {
  if (sequences.empty()) return Status::ok();
  return tower_->fold(op_context(), *memory_, sequences);
}

}  // namespace lathe
