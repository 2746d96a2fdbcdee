#include "feedback/op_source.h"

#include <algorithm>
#include <chrono>

namespace lathe {

namespace {

// Samples that need seconds of the oracle: the first lives, and then now and then.
constexpr int kThoroughEvery = 16;
constexpr double kHopelessWork = 1e10;   // operations and bytes a second of a life's time: nothing here is faster
constexpr int kFewestCalls = 30;         // of a life, and what else it needs
constexpr double kShortestCall = 20e-6;  // below that, asking takes longer than the call
constexpr double kMostSeconds = 0.1, kWindowShare = 0.4;  // of measured windows in a life

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<bool> OpSource::try_case(const AnyOp& op, int index, uint64_t secret) {
  const std::string& name = op.cases[index].name;
  TrialOptions options{.threads = std::max(a_.threads, b_.threads),
                       .seconds = std::min(kMostSeconds, left_ * kWindowShare),
                       .secret = secret + index};
  LATHE_ASSIGN(std::unique_ptr<OpTrial> trial, OpTrial::create(op, index, options));
  double call_seconds = 0;
  for (const OpArm* arm : {&a_, &b_}) {
    LATHE_ASSIGN(const double seconds, trial->own_seconds(arm->variant));
    call_seconds = std::max(call_seconds, seconds);
  }
  if (kFewestCalls * call_seconds > left_) {
    left_out_.push_back(name + " (no time)");
    return true;
  }
  if (call_seconds < kShortestCall && !trials_.empty()) {
    left_out_.push_back(name + " (too short to be timed from outside)");
    return true;
  }
  // A first life of each arm, thoroughly checked: does it take the case, is it right, how long does it take?
  double slower = 0;
  for (OpArm* arm : {&a_, &b_}) {
    LATHE_ASSIGN(const TrialResult first,
                 trial->measure(arm->command, arm->variant, arm->threads, arm->build_id, true));
    if (first.trouble) {
      trouble_ =
          Life::Trouble{first.trouble->verdict, fmt::format("{}: {}", arm == &a_ ? "A" : "B", first.trouble->why)};
      strata_ = {name};
      return false;
    }
    if (!first.applies) {
      left_out_.push_back(name + " (not taken by both)");
      return true;
    }
    // Again, as the lives of the experiment will be.
    const auto begin = std::chrono::steady_clock::now();
    LATHE_RETURN_IF_ERROR(trial->measure(arm->command, arm->variant, arm->threads, arm->build_id, false).status());
    slower = std::max(slower, seconds_since(begin));
  }
  if (slower > left_ && !trials_.empty()) {
    left_out_.push_back(name + " (no time)");
    return true;
  }
  left_ -= slower;
  strata_.push_back(name);
  trials_.push_back(std::move(trial));
  return true;
}

Result<std::unique_ptr<OpSource>> OpSource::create(const AnyOp& op, const std::vector<int>& cases,
                                                   const std::vector<int>& otherwise, OpArm a, OpArm b, double seconds,
                                                   uint64_t secret) {
  auto source = std::unique_ptr<OpSource>(new OpSource(std::move(a), std::move(b), seconds));
  // Large ones first: they are steadier, and what users wait for.
  const auto try_all = [&](std::vector<int> some, bool one_is_enough) -> Result<bool> {
    const auto work = [&](int i) { return op.cases[i].flop + op.cases[i].bytes; };
    std::stable_sort(some.begin(), some.end(), [&](int x, int y) { return work(x) > work(y); });
    for (int index : some) {
      if (one_is_enough && !source->trials_.empty()) break;
      if (source->left_ <= 0 || static_cast<double>(work(index)) > kHopelessWork * source->left_) {
        source->left_out_.push_back(op.cases[index].name + " (no time)");
        continue;
      }
      LATHE_ASSIGN(const bool fine, source->try_case(op, index, secret));
      if (!fine) return false;
    }
    return true;
  };
  LATHE_ASSIGN(const bool fine, try_all(cases, false));
  if (fine && source->trials_.empty()) {
    source->left_out_.clear();
    LATHE_RETURN_IF_ERROR(try_all(otherwise, true).status());
  }
  if (source->trials_.empty() && !source->trouble_)
    return invalid("{}: no case that both arms take in the time", op.name);
  return source;
}

Result<Life> OpSource::live(Arm arm) {
  const OpArm& who = arm == Arm::kA ? a_ : b_;
  Life life{.arm = arm, .values = {}};
  const bool thorough = ++lives_ % kThoroughEvery == 0;
  for (const auto& trial : trials_) {
    LATHE_ASSIGN(const TrialResult result,
                 trial->measure(who.command, who.variant, who.threads, who.build_id, thorough));
    life.trouble = result.trouble;
    if (life.trouble) return life;
    if (!result.applies) return internal("{} no longer takes {}", who.command[0], trial->info().name);
    life.values.push_back(result.median_us);
  }
  return life;
}

}  // namespace lathe
