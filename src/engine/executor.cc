#include "engine/executor.h"

#include <algorithm>

namespace lathe {

namespace {
// Address space for what operators need within a call; touched as it is used.
constexpr int64_t kScratchBytes = int64_t{64} << 30;

// The planted fault cursor_per_layer, on a device that shares host memory.
class CursorMover final : public StepObserver {
 public:
  CursorMover(const Batch& batch, int length) : batch_(batch), length_(length) {}
  void layer_done(int) override {
    const PhaseRows& p = batch_.replay;
    for (int64_t i = 0; i < p.slot.count; ++i) {
      const int rows = p.runs.start[i + 1] - p.runs.start[i];
      int32_t& cursor = const_cast<int32_t&>(batch_.cursor[p.slot[i]]);
      if (cursor + 2 * rows <= length_) cursor += rows;
    }
  }

 private:
  const Batch& batch_;
  int length_;
};

int64_t rows_of(const std::vector<Run>& runs) {
  int64_t rows = 0;
  for (const Run& r : runs) rows += static_cast<int64_t>(r.tokens.size());
  return rows;
}

// What a trace calls a pass: decode feeds one token a sequence, or drafts through the ring.
const char* kind_of(const std::vector<Run>& runs) {
  size_t decoding = 0;
  for (const Run& r : runs) decoding += r.in_ring || r.tokens.size() == 1;
  return decoding == runs.size() ? "decode step" : decoding == 0 ? "prefill step" : "mixed step";
}
}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const glm5_next::Config& config, const Checkpoint& checkpoint,
                                                   Device& device, ThreadPool& pool, Communicator* comm,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<Executor> e(new Executor(device, pool, comm));
  e->options_ = options;
  if (options.probes) e->op_probe_ = std::make_unique<OpProbe>(options.probes, options.observer);
  pool.probe(options.probes);
  LATHE_ASSIGN(glm5_next::TextWeights weights,
               glm5_next::load_text_weights(config.text, checkpoint, device, options.partition));
  e->tower_ = std::make_unique<glm5_next::TextTower>(config.text, std::move(weights), options.partition, options.dtype);
  LATHE_ASSIGN(e->memory_,
               SequenceMemory::create(device, e->tower_->memory_shape(options.replay_length, options.max_draft),
                                      options.slots, options.pages, options.checkpoints));
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
          .observer = op_probe_ ? op_probe_.get() : options_.observer,
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
  Recorder* const probes = options_.probes;
  const ProbeSpan step_probe(probes, probes ? kind_of(runs) : "", nullptr, probes ? rows_of(runs) : 0, {step_ + 1, -1});
  std::vector<SequenceId> to_fold;
  for (const Run& r : runs) {
    if (!r.in_ring && !memory_->ring_is_empty(r.sequence)) to_fold.push_back(r.sequence);
    const ProbeSpan probe(probes, "reserve pages");
    LATHE_RETURN_IF_ERROR(
        memory_->reserve(r.sequence, memory_->position(r.sequence) + static_cast<int>(r.tokens.size())));
  }
  LATHE_RETURN_IF_ERROR(fold(to_fold));
  hidden_.clear();
  {
    const ProbeSpan probe(probes, "form batch");
    LATHE_ASSIGN(batch_, Batch::build(device_, runs, *memory_, options_.partition));
    LATHE_RETURN_IF_ERROR(make_room(batch_->all_rows, batch_->logit_row.count));
  }
  ++step_;
  CursorMover mover(*batch_, memory_->shape().replay_length);
  if (options_.faults.cursor_per_layer) observer = &mover;
  const glm5_next::Step step{op_context(), *batch_, *memory_, activations_, observer, features};
  LATHE_ASSIGN(glm5_next::StepOutput out, tower_->forward(step));
  for (const Run& r : runs) {
    const int rows = static_cast<int>(r.tokens.size());
    if (r.in_ring)
      memory_->advance_in_ring(r.sequence, rows, rows);
    else
      memory_->advance(r.sequence, rows);
  }
  if (memory_->shape().hidden) keep_hidden(runs, out.hidden);
  return out;
}

void Executor::copy_row(const Rows& to, const Rows& from) {
  device_.copy(to.data, from.data, from.width * dtype_bytes(from.dtype));
}

void Executor::keep_hidden(const std::vector<Run>& runs, const Rows& hidden) {
  int64_t row = 0;
  for (size_t i = 0; i < batch_->order.size(); ++i) {
    const SequenceId id = runs[batch_->order[i]].sequence;
    const Rows rows = hidden.slice(row, batch_->total_rows[i]);
    row += rows.rows;
    hidden_.emplace_back(id, rows);
    copy_row(memory_->hidden_before(id), memory_->last_hidden(id));
    if (rows.rows > 0) copy_row(memory_->last_hidden(id), rows.slice(rows.rows - 1, 1));
  }
}

Rows Executor::hidden_of_last_run(SequenceId sequence) const {
  for (const auto& [id, rows] : hidden_)
    if (id == sequence) return rows;
  return {};
}

Result<glm5_next::StepOutput> Executor::run_mtp(const std::vector<Run>& runs, const std::vector<int>& past,
                                                const Rows& previous) {
  for (size_t i = 0; i < runs.size(); ++i)
    LATHE_RETURN_IF_ERROR(
        memory_->reserve_rows(runs[i].sequence, past[i], past[i] + static_cast<int>(runs[i].tokens.size())));
  hidden_.clear();
  LATHE_ASSIGN(batch_, Batch::build_at(device_, runs, past, *memory_, options_.partition));
  LATHE_RETURN_IF_ERROR(make_room(batch_->all_rows, batch_->logit_row.count));
  const glm5_next::Step step{op_context(), *batch_, *memory_, activations_, nullptr, {}};
  return tower_->mtp_forward(step, previous);
}

Status Executor::accept(SequenceId sequence, int rows_run, int count) {
  LATHE_CHECK(count >= 0 && count <= rows_run);
  LATHE_RETURN_IF_ERROR(memory_->rollback(sequence, memory_->position(sequence) - rows_run + count));
  if (!memory_->shape().hidden || count == rows_run) return Status::ok();
  const Rows rows = hidden_of_last_run(sequence);
  if (rows.rows != rows_run)
    return internal("accept after another pass than sequence {}'s run of {}", sequence, rows_run);
  copy_row(memory_->last_hidden(sequence), count ? rows.slice(count - 1, 1) : memory_->hidden_before(sequence));
  return Status::ok();
}

Result<std::vector<LiveThread>> Executor::quiesce() {
  LATHE_RETURN_IF_ERROR(device_.synchronize());
  return thread_census();  // the pool returns from run() only when its workers have nothing left
}

Status Executor::fold(const std::vector<SequenceId>& sequences) {
  if (sequences.empty()) return Status::ok();
  if (options_.faults.skipped_fold) {
    for (SequenceId id : sequences) memory_->folded(id);
    return Status::ok();
  }
  return tower_->fold(op_context(), *memory_, sequences);
}

}  // namespace lathe
