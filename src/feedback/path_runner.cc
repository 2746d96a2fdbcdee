#include "feedback/path_runner.h"

#include <algorithm>
#include <cstring>

#include "engine/run_settings.h"
#include "lathe/logits.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/registry.h"

namespace lathe {

namespace {

constexpr int kMostDraft = 4, kSlots = 6;

// Keeps what the layers held for one sequence's rows of a pass.
class Tap final : public StepObserver {
 public:
  explicit Tap(Device& device) : device_(device) {}

  // The next pass: the sequence's rows begin at `position`, and the batch has `all` rows, `rows` of them ours.
  void begin_pass(int pass, int64_t position, int64_t rows, int64_t first_row, int64_t all) {
    pass_ = pass, position_ = position, rows_ = rows, first_row_ = first_row, all_ = all;
  }
  void selection(int layer, Array<int32_t> selected, Array<int32_t> count, int width) override {
    const std::vector<int32_t> ids = on_host(selected), counts = on_host(count);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = first_row_ + r;
      std::vector<float> chosen(ids.begin() + row * width, ids.begin() + row * width + counts[row]);
      std::sort(chosen.begin(), chosen.end());  // it is a set
      keep(r, layer, TappedRow::Place::kSelection, std::move(chosen));
    }
  }
  void routing(int layer, Array<int32_t>, Array<float> weight) override {
    const std::vector<float> weights = on_host(weight);
    const int64_t top = weight.count / all_;
    for (int64_t r = 0; r < rows_; ++r) {
      const auto row = weights.begin() + (first_row_ + r) * top;
      keep(r, layer, TappedRow::Place::kRouting, {row, row + top});
    }
  }
  void streams(int layer, const Rows& rows) override {
    std::vector<float> values;
    if (!rows_to_host(device_, rows, values).is_ok()) return;
    for (int64_t r = 0; r < rows_; ++r) {
      const auto row = values.begin() + (first_row_ + r) * rows.width;
      keep(r, layer, TappedRow::Place::kStreams, {row, row + rows.width});
    }
  }
  std::vector<TappedRow> kept;

 private:
  template <class T>
  std::vector<T> on_host(Array<T> values) {
    std::vector<T> out(values.count);
    const Status s = device_.to_host(out.data(), values.data, values.count * static_cast<int64_t>(sizeof(T)));
    LATHE_CHECK(s.is_ok());  // a cpu
    return out;
  }
  void keep(int64_t row, int layer, TappedRow::Place place, std::vector<float> values) {
    kept.push_back({position_ + row, layer, place, pass_, std::move(values)});
  }

  Device& device_;
  int pass_ = 0;
  int64_t position_ = 0, rows_ = 0, first_row_ = 0, all_ = 0;
};

int wrong_token(int32_t token, int vocab) { return (token + 1) % vocab; }

}  // namespace

struct PathRunner::Engine {
  explicit Engine(int threads) : pool(threads) {}
  std::unique_ptr<Device> device = make_cpu_device();
  ThreadPool pool;
  std::unique_ptr<Executor> executor;
};

PathRunner::~PathRunner() = default;

Result<std::unique_ptr<PathRunner>> PathRunner::create(const std::string& model, const std::string& dtype,
                                                       int most_tokens, MakeExecutor make_executor) {
  std::unique_ptr<PathRunner> r(new PathRunner());
  r->model_ = model, r->dtype_ = dtype, r->most_tokens_ = most_tokens;
  r->make_executor_ = std::move(make_executor);
  LATHE_ASSIGN(r->config_, glm5_next::Config::read(model));
  LATHE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(model));
  r->checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
  return r;
}

Result<PathRunner::Engine*> PathRunner::engine(const Path& path) {
  std::unique_ptr<Engine>& e = engines_[path.threads];
  if (!e) {
    e = std::make_unique<Engine>(path.threads);
    ExecutorOptions o;
    LATHE_ASSIGN(o.dtype, activation_dtype(dtype_, config_.text));
    o.replay_length = ring_length(config_.text.gate_bound), o.max_draft = kMostDraft, o.slots = kSlots,
    o.checkpoints = 1;
    o.pages = (kSlots + 1) * (most_tokens_ / page_tokens_for(config_.text.kpool) + 2);
    LATHE_ASSIGN(e->executor, make_executor_(config_, *checkpoint_, *e->device, e->pool, nullptr, o));
  }
  Choices choices;
  LATHE_RETURN_IF_ERROR(add_choices(path.variants, choices));
  e->executor->use(choices);
  return e.get();
}

namespace {

// One walk of a sequence, and its company, along a path.
class Walk {
 public:
  Walk(const Path& path, const std::vector<int32_t>& tokens, Executor& executor, Device& device, Tap* tap)
      : path_(path), executor_(executor), device_(device), tap_(tap), vocab_(executor.tower().config().vocab) {
    lists_.push_back(tokens);
    for (int i = 0; i < path.company; ++i) {  // other tokens, other lengths; ours stands among them
      std::vector<int32_t> other(tokens.rbegin(), tokens.rend());
      other.resize(std::max<size_t>(1, tokens.size() * (i + 1) / (path.company + 1)));
      lists_.insert(i % 2 ? lists_.end() : lists_.begin(), other);
      if (i % 2 == 0) ++own_;
    }
  }

  Result<PathResult> run() {
    SequenceMemory& memory = executor_.memory();
    out_.vocab = vocab_;
    for (size_t i = 0; i < lists_.size(); ++i) {
      LATHE_ASSIGN(const SequenceId id, memory.open());
      ids_.push_back(id);
    }
    const Status status = passes();
    for (SequenceId id : ids_) memory.close(id);
    if (!status.is_ok()) return status.within(path_.name);
    return std::move(out_);
  }

 private:
  int length(size_t i) const { return static_cast<int>(lists_[i].size()); }
  int position(size_t i) const { return executor_.memory().position(ids_[i]); }

  int piece(size_t i) const {
    const int at = position(i), end = path_.decode_from < 0 ? length(i) : std::min(path_.decode_from, length(i));
    if (at >= end) return 1;
    int n = path_.chunk > 0 ? std::min(path_.chunk, end - at) : end - at;
    if (path_.frozen_at > at) n = std::min(n, path_.frozen_at - at);
    return n;
  }

  Status passes() {
    for (int pass = 0;; ++pass) {
      std::vector<Run> runs;
      std::vector<size_t> which;
      for (size_t i = 0; i < lists_.size(); ++i) {
        if (position(i) >= length(i)) continue;
        runs.push_back(next_run(i)), which.push_back(i);
      }
      if (runs.empty()) return Status::ok();
      LATHE_RETURN_IF_ERROR(one_pass(pass, runs, which));
      if (pass == 0 && path_.forgets) forget(ids_[own_], *path_.forgets);
      if (path_.frozen_at > 0 && position(own_) == path_.frozen_at) LATHE_RETURN_IF_ERROR(freeze_and_fork());
    }
  }

  Run next_run(size_t i) const {
    const int at = position(i), n = piece(i);
    Run run{.sequence = ids_[i], .tokens = {lists_[i].begin() + at, lists_[i].begin() + at + n}, .features = {}};
    run.in_ring = path_.replay && path_.decode_from >= 0 && at >= path_.decode_from;
    if (run.in_ring)
      for (int d = 0; d < path_.drafts; ++d) run.tokens.push_back(wrong_token(lists_[i][at], vocab_));
    run.logits_of_last = -1;
    return run;
  }

  Status one_pass(int pass, const std::vector<Run>& runs, const std::vector<size_t>& which) {
    // Sequences stand in the order prefill, decode, replay; within each as they came.
    const auto phase = [](const Run& r) { return r.in_ring ? 2 : r.tokens.size() == 1 ? 1 : 0; };
    std::vector<size_t> order(runs.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return phase(runs[a]) < phase(runs[b]); });
    int64_t all = 0, first = -1;
    size_t own = runs.size();
    for (size_t i : order) {
      if (which[i] == own_) first = all, own = i;
      all += static_cast<int64_t>(runs[i].tokens.size());
    }
    const int drafts = own < runs.size() && runs[own].in_ring ? path_.drafts : 0;
    const int64_t rows = own < runs.size() ? static_cast<int64_t>(runs[own].tokens.size()) - drafts : 0;
    if (tap_) tap_->begin_pass(pass, rows > 0 ? position(own_) : 0, rows, std::max<int64_t>(first, 0), all);
    LATHE_ASSIGN(const glm5_next::StepOutput out, executor_.run(runs, tap_));
    if (rows > 0) {
      std::vector<float> logits;
      LATHE_RETURN_IF_ERROR(rows_to_host(device_, out.logits, logits));
      int64_t row = 0;
      for (int in_batch : executor_.last_batch().order) {
        if (static_cast<size_t>(in_batch) == own)
          out_.logits.insert(out_.logits.end(), logits.begin() + row * vocab_, logits.begin() + (row + rows) * vocab_);
        row += static_cast<int64_t>(runs[in_batch].tokens.size());
      }
    }
    for (size_t i = 0; i < runs.size(); ++i)
      if (runs[i].in_ring && path_.drafts > 0)
        LATHE_RETURN_IF_ERROR(executor_.accept(runs[i].sequence, 1 + path_.drafts, 1));
    return Status::ok();
  }

  Status freeze_and_fork() {
    LATHE_RETURN_IF_ERROR(executor_.fold({ids_[own_]}));
    LATHE_ASSIGN(const SequenceId frozen, executor_.memory().freeze(ids_[own_]));
    Result<SequenceId> twin = executor_.memory().fork(frozen);
    executor_.memory().close(frozen);
    LATHE_RETURN_IF_ERROR(twin.status());
    ids_[own_] = *twin;
    return Status::ok();
  }

  void forget(SequenceId id, SegmentKind kind) {
    for (const Segment& s : executor_.memory().segments(id))
      if (s.kind == kind) std::memset(s.address, 0, s.bytes);
  }

  const Path& path_;
  Executor& executor_;
  Device& device_;
  Tap* tap_;
  const int vocab_;
  std::vector<std::vector<int32_t>> lists_;
  size_t own_ = 0;
  std::vector<SequenceId> ids_;
  PathResult out_;
};

}  // namespace

Result<PathResult> PathRunner::run(const Path& path, const std::vector<int32_t>& tokens, Look look) {
  if (!path.cut.empty() || look == Look::kStreams) return run_logits(path, tokens, look);
  LATHE_ASSIGN(Engine* const e, engine(path));
  Tap tap(*e->device);
  LATHE_ASSIGN(PathResult result,
               Walk(path, tokens, *e->executor, *e->device, look == Look::kTaps ? &tap : nullptr).run());
  result.taps = std::move(tap.kept);
  return result;
}

Result<PathResult> PathRunner::run_logits(const Path& path, const std::vector<int32_t>& tokens, Look look) const {
  const LogitsOptions o{.model = model_,
                        .dtype = dtype_,
                        .chunk = path.chunk,
                        .decode_from = path.decode_from,
                        .replay = path.replay,
                        .cut = path.cut,
                        .hidden = look == Look::kStreams,
                        .variants = path.variants};
  Result<std::vector<SequenceLogits>> all = compute_logits(o, {tokens});
  if (!all.is_ok()) return all.status().within(path.name);
  SequenceLogits& s = all->front();
  return PathResult{s.vocab, std::move(s.logits), std::move(s.hidden), {}};
}

}  // namespace lathe
