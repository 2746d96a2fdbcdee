#include "feedback/kda_numerics.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/thread_pool.h"
#include "feedback/kda_forms.h"
#include "ops/kda_prefill/head_work.h"

namespace lathe {

namespace {

constexpr int kDim = kKdaTokenDim, kCells = kDim * kDim, kStep = 16;
constexpr double kFp32Tolerance = 1e-5, kTf32Tolerance = 3e-4;
constexpr double kVanished = 1e-20;  // a map whose cells are smaller passes nothing on: its error counts against this

const char* gates_name(KdaTokenGates gates) { return gates == KdaTokenGates::kForget ? "forget" : "retain"; }

// state [V, K] against the oracle's [K][V].
double state_error(const std::vector<double>& oracle, const std::vector<float>& state) {
  ErrorRatio e;
  for (int j = 0; j < kDim; ++j)
    for (int i = 0; i < kDim; ++i) e.add(state[j * kDim + i], oracle[i * kDim + j]);
  return e.value();
}

void add_outputs(const float* o, const std::vector<double>& oracle, int n, ErrorRatio& e) {
  for (int i = 0; i < n * kDim; ++i) e.add(o[i], oracle[i]);
}

// Where a run over tokens stops to be measured, and how far it goes.
using NumericsRows = std::vector<KdaNumericsRow>;

// decode, sequential, chunked and replay, once over the longest context; a row each at every length.
NumericsRows running_rows(KdaTokenGates gates, const KdaNumericsOptions& options, Arena& arena) {
  const KdaTokenSource source(gates, options.seed);
  auto forms = kda_running_forms(arena);
  std::vector<ErrorRatio> outputs(forms.size());
  KdaOracleState oracle;
  KdaTokens tokens(kStep);
  std::vector<double> o(kStep * kDim);
  std::vector<float> state(kCells);
  NumericsRows rows;
  int64_t at = 0;
  for (int64_t length : options.tokens) {
    for (; at < length; at += kStep) {
      source.make(at, kStep, tokens);
      for (int t = 0; t < kStep; ++t) oracle.step(tokens, t, true, &o[t * kDim]);
      const FlushTinyNumbers flush;
      for (size_t f = 0; f < forms.size(); ++f) add_outputs(forms[f]->step(tokens, kStep), o, kStep, outputs[f]);
    }
    for (size_t f = 0; f < forms.size(); ++f) {
      forms[f]->read_state(state.data());
      rows.push_back({.gates = gates_name(gates),
                      .form = forms[f]->name(),
                      .tokens = length,
                      .state_error = state_error(oracle.S, state),
                      .output_error = outputs[f].value(),
                      .tolerance = kFp32Tolerance});
    }
  }
  return rows;
}

// [K, K] products in doubles of maps kept as Aᵀ: later·earlier.
std::vector<double> composed(const std::vector<double>& earlier, const std::vector<double>& later) {
  std::vector<double> product(kCells);
  for (int i = 0; i < kDim; ++i)
    for (int m = 0; m < kDim; ++m)
      for (int j = 0; j < kDim; ++j) product[i * kDim + j] += later[i * kDim + m] * earlier[m * kDim + j];
  return product;
}

class ScanRun {
 public:
  ScanRun(KdaTokenGates gates, int64_t length, const KdaNumericsOptions& options, Arena& arena)
      : gates_(gates),
        length_(length),
        source_(gates, options.seed),
        finest_(*std::max_element(options.segments.begin(), options.segments.end())) {
    for (int segments : options.segments)
      for (KdaScanForm form : {KdaScanForm::kIncrement, KdaScanForm::kIncrementTf32, KdaScanForm::kProductTf32})
        passes_.push_back(std::make_unique<KdaScanPass>(form, segments, length / segments, arena));
  }

  NumericsRows rows() {
    make_maps();
    const std::vector<ErrorRatio> outputs = run();
    NumericsRows rows;
    for (size_t p = 0; p < passes_.size(); ++p) {
      const KdaScanPass& pass = *passes_[p];
      const bool product = pass.form == KdaScanForm::kProductTf32;
      rows.push_back({.gates = gates_name(gates_),
                      .form = kda_scan_form_name(pass.form),
                      .tokens = length_,
                      .segments = pass.segments,
                      .state_error = worst_state_error(pass),
                      .output_error = outputs[p].value(),
                      .map_error = map_error(pass),
                      .tolerance = pass.form == KdaScanForm::kIncrement ? kFp32Tolerance : kTf32Tolerance,
                      .must_fail = product && gates_ == KdaTokenGates::kRetain});
    }
    return rows;
  }

 private:
  void make_maps() {
    KdaTokens tokens(kStep);
    KdaOracleState map;
    for (int64_t at = 0; at < length_; at += kStep) {
      source_.make(at, kStep, tokens);
      const FlushTinyNumbers flush;
      if (at % (length_ / finest_) == 0) map.set_identity();
      for (int t = 0; t < kStep; ++t) map.step(tokens, t, false, nullptr);
      if ((at + kStep) % (length_ / finest_) == 0) maps_.push_back(map.S);
      for (auto& pass : passes_) pass->add_to_map(tokens, kStep);
    }
  }
  std::vector<ErrorRatio> run() {
    KdaTokens tokens(kStep);
    std::vector<double> o(kStep * kDim);
    std::vector<ErrorRatio> outputs(passes_.size());
    for (int64_t at = 0; at < length_; at += kStep) {
      source_.make(at, kStep, tokens);
      for (int t = 0; t < kStep; ++t) oracle_.step(tokens, t, true, &o[t * kDim]);
      if ((at + kStep) % (length_ / finest_) == 0) states_.push_back(oracle_.S);
      const FlushTinyNumbers flush;
      for (size_t p = 0; p < passes_.size(); ++p) add_outputs(passes_[p]->step(tokens, kStep), o, kStep, outputs[p]);
    }
    return outputs;
  }
  // Of every state that the maps led to, the last one's too, and of the one that the last segment ran to.
  double worst_state_error(const KdaScanPass& pass) const {
    std::vector<float> state(kCells);
    pass.read_state(state.data());
    double worst = state_error(oracle_.S, state);
    const int pieces = finest_ / pass.segments;
    for (int s = 1; s <= pass.segments; ++s) {
      pass.read_joined(s, state.data());
      worst = std::max(worst, state_error(states_[s * pieces - 1], state));
    }
    return worst;
  }
  // Of the worst segment. The oracle's map of a long segment is composed of those of the finest.
  double map_error(const KdaScanPass& pass) const {
    double worst = 0;
    std::vector<float> a(kCells);
    const int pieces = finest_ / pass.segments;
    for (int s = 0; s < pass.segments; ++s) {
      std::vector<double> oracle = maps_[s * pieces];
      for (int n = 1; n < pieces; ++n) oracle = composed(oracle, maps_[s * pieces + n]);
      pass.read_map(s, a.data());
      ErrorRatio e{.error = 0, .reference = kCells * kVanished * kVanished};
      for (int j = 0; j < kDim; ++j)
        for (int i = 0; i < kDim; ++i) e.add(a[j * kDim + i], oracle[i * kDim + j]);
      worst = std::max(worst, e.value());
    }
    return worst;
  }

  const KdaTokenGates gates_;
  const int64_t length_;
  const KdaTokenSource source_;
  const int finest_;
  std::vector<std::unique_ptr<KdaScanPass>> passes_;
  KdaOracleState oracle_;
  std::vector<std::vector<double>> maps_, states_;  // of the finest segments: their maps, the states after them
};

Status check(const KdaNumericsOptions& options) {
  if (options.tokens.empty() || options.segments.empty()) return invalid("kda_numerics: no lengths or no segments");
  const int finest = *std::max_element(options.segments.begin(), options.segments.end());
  if (!std::is_sorted(options.tokens.begin(), options.tokens.end()))
    return invalid("kda_numerics: lengths must ascend");
  for (int64_t length : options.tokens)
    for (int segments : options.segments)
      if (segments < 1 || finest % segments != 0 || length % (int64_t{kStep} * finest) != 0)
        return invalid(
            "kda_numerics: {} tokens in {} segments: segments must divide {}, and lengths be multiples of {}", length,
            segments, finest, kStep * finest);
  return Status::ok();
}

}  // namespace

double KdaNumericsRow::worst() const { return std::max({state_error, output_error, map_error}); }

Result<std::vector<KdaNumericsRow>> kda_numerics(const KdaNumericsOptions& options,
                                                 const KdaNumericsProgress& progress) {
  LATHE_RETURN_IF_ERROR(check(options));
  struct Job {
    KdaTokenGates gates;
    int64_t length;  // of a scan; 0: the running forms
    NumericsRows rows;
  };
  std::vector<Job> jobs;  // long ones first
  for (auto length = options.tokens.rbegin(); length != options.tokens.rend(); ++length)
    for (KdaTokenGates gates : {KdaTokenGates::kForget, KdaTokenGates::kRetain}) jobs.push_back({gates, *length, {}});
  for (KdaTokenGates gates : {KdaTokenGates::kForget, KdaTokenGates::kRetain}) jobs.push_back({gates, 0, {}});

  ThreadPool pool(options.threads);
  const std::unique_ptr<Device> device = make_cpu_device();
  std::atomic<int> done = 0;
  std::mutex mutex;
  Status failure;
  pool.run(static_cast<int64_t>(jobs.size()), [&](int64_t n, int) {
    Job& job = jobs[n];
    auto arena = Arena::create(*device, int64_t{256} << 20);
    if (!arena.is_ok()) {
      std::lock_guard lock(mutex);
      failure = arena.status();
      return;
    }
    job.rows =
        job.length ? ScanRun(job.gates, job.length, options, *arena).rows() : running_rows(job.gates, options, *arena);
    std::lock_guard lock(mutex);
    progress(fmt::format("{} {}", gates_name(job.gates),
                         job.length ? fmt::format("scan of {} tokens", job.length) : "running forms"),
             ++done, static_cast<int>(jobs.size()));
  });
  LATHE_RETURN_IF_ERROR(failure);
  NumericsRows all;
  for (int64_t length : options.tokens)
    for (KdaTokenGates gates : {KdaTokenGates::kForget, KdaTokenGates::kRetain})
      for (bool scan : {false, true})
        for (const Job& job : jobs)
          if (job.gates == gates && (job.length > 0) == scan)
            for (const KdaNumericsRow& row : job.rows)
              if (row.tokens == length) all.push_back(row);
  return all;
}

}  // namespace lathe
