#include "testing/planted_faults.h"

#include <deque>
#include <map>

namespace lathe::testing {

namespace {

// Moves the ring's cursors after every layer.
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

// A device whose transfers from the host into `watched` memory land a second time, some passes later: as if whoever
// began them had not waited for their end.
class LateDevice final : public Device {
 public:
  struct Range {
    const char *begin, *end;
  };
  std::vector<Range> watched;

  void pass() {
    ++passes_;
    for (; !pending_.empty() && pending_.front().due <= passes_; pending_.pop_front())
      inner_->to_device(pending_.front().to, pending_.front().bytes.data(),
                        static_cast<int64_t>(pending_.front().bytes.size()));
  }

  DeviceKind kind() const override { return inner_->kind(); }
  std::string name() const override { return inner_->name(); }
  Result<void*> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* address, int64_t bytes) override { inner_->release(address, bytes); }
  bool shares_host_memory() const override { return inner_->shares_host_memory(); }
  void to_device(void* to, const void* from, int64_t bytes) override {
    inner_->to_device(to, from, bytes);
    const char* const at = static_cast<const char*>(to);
    for (const Range& r : watched)
      if (at >= r.begin && at < r.end) {
        const char* const source = static_cast<const char*>(from);
        pending_.push_back({to, {source, source + bytes}, passes_ + kLate});
      }
  }
  Status to_host(void* to, const void* from, int64_t bytes) override { return inner_->to_host(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override { inner_->copy(to, from, bytes); }
  void zero(void* to, int64_t bytes) override { inner_->zero(to, bytes); }
  void enqueue(std::function<Status()> work) override { inner_->enqueue(std::move(work)); }
  Status synchronize() override { return inner_->synchronize(); }

 private:
  static constexpr int64_t kLate = 24;  // passes
  struct Write {
    void* to;
    std::vector<char> bytes;
    int64_t due;
  };
  std::unique_ptr<Device> inner_ = make_cpu_device();
  std::deque<Write> pending_;
  int64_t passes_ = 0;
};

class FaultyExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const glm5_next::Config& config, const Checkpoint& checkpoint,
                                                  Device& device, ThreadPool& pool, Communicator* comm,
                                                  const ExecutorOptions& options, PlantedFault fault) {
    std::unique_ptr<FaultyExecutor> e(new FaultyExecutor(device, pool, comm, fault));
    LATHE_RETURN_IF_ERROR(e->load(config, checkpoint, options));
    if (fault == PlantedFault::kReusedUnderLoad) e->watch_pages();
    return std::unique_ptr<Executor>(std::move(e));
  }

  Result<glm5_next::StepOutput> run(const std::vector<Run>& runs, StepObserver* observer, Rows features) override {
    if (late_) late_->pass();
    if (fault_ == PlantedFault::kDroppedTail) drop_tails(runs);
    CursorMover mover(last_batch(), memory().shape().replay_length);
    if (fault_ == PlantedFault::kCursorPerLayer) observer = &mover;
    auto out = Executor::run(runs, observer, features);
    for (const Run& r : runs) ended_at_[r.sequence] = memory().position(r.sequence);
    return out;
  }

  Status fold(const std::vector<SequenceId>& sequences) override {
    if (fault_ != PlantedFault::kSkippedFold) return Executor::fold(sequences);
    for (const SequenceId id : sequences) memory().folded(id);
    return Status::ok();
  }

 private:
  FaultyExecutor(Device& device, ThreadPool& pool, Communicator* comm, PlantedFault fault)
      : Executor(device, pool, comm), fault_(fault) {}

  void watch_pages() {
    late_ = static_cast<LateDevice*>(&device());
    auto watch = [&](const Pool& p) {
      const char* const begin = static_cast<const char*>(p.data);
      late_->watched.push_back({begin, begin + p.items * p.item_size * dtype_bytes(p.dtype)});
    };
    for (int l = 0; l < memory().shape().sparse_layers(); ++l) {
      watch(memory().latent_pages(l));
      if (memory().shape().has_index[l]) watch(memory().index_pages(l));
    }
  }

  // Of sequences that go on from where another one, or the cache, had come.
  void drop_tails(const std::vector<Run>& runs) {
    for (const Run& r : runs) {
      const int position = memory().position(r.sequence);
      const auto known = ended_at_.find(r.sequence);
      if (position == 0 || (known != ended_at_.end() && known->second == position)) continue;
      for (const Segment& s : memory().segments(r.sequence))
        if (s.kind == SegmentKind::kOpenRows) device().zero(s.address, s.bytes);
    }
  }

  const PlantedFault fault_;
  LateDevice* late_ = nullptr;
  std::map<SequenceId, int> ended_at_;
};

}  // namespace

ServiceParts parts_with(PlantedFault fault) {
  ServiceParts parts;
  if (fault == PlantedFault::kReusedUnderLoad)
    parts.device = [](const std::string&) -> Result<std::unique_ptr<Device>> {
      return std::unique_ptr<Device>(std::make_unique<LateDevice>());
    };
  parts.executor = [fault](const glm5_next::Config& config, const Checkpoint& checkpoint, Device& device,
                           ThreadPool& pool, Communicator* comm, const ExecutorOptions& options) {
    return FaultyExecutor::create(config, checkpoint, device, pool, comm, options, fault);
  };
  return parts;
}

}  // namespace lathe::testing
