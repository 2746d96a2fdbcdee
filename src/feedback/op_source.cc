#include "feedback/op_source.h"

#include <chrono>

namespace lathe {

namespace {

// Samples that need seconds of the oracle: the first lives, and then now and then.
constexpr int kThoroughEvery = 16;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<std::unique_ptr<OpSource>> OpSource::create(const AnyOp& op, const std::vector<int>& cases, OpArm a, OpArm b,
                                                   double seconds, uint64_t secret) {
  auto source = std::unique_ptr<OpSource>(new OpSource(std::move(a), std::move(b)));
  double left = seconds;
  for (int index : cases) {
    const std::string& name = op.cases[index].name;
    if (left <= 0) {
      source->left_out_.push_back(name + " (no time)");
      continue;
    }
    TrialOptions options{
        .threads = std::max(source->a_.threads, source->b_.threads), .seconds = 0.1, .secret = secret + index};
    LATHE_ASSIGN(std::unique_ptr<OpTrial> trial, OpTrial::create(op, index, options));
    // A first life of each arm, thoroughly checked: does it take the case, is it right, how long does it take?
    double slower = 0;
    bool applies = true;
    for (OpArm* arm : {&source->a_, &source->b_}) {
      LATHE_ASSIGN(const TrialResult first,
                   trial->measure(arm->command, arm->variant, arm->threads, arm->build_id, true));
      if (first.trouble) {
        source->trouble_ = Life::Trouble{first.trouble->verdict,
                                         fmt::format("{}: {}", arm == &source->a_ ? "A" : "B", first.trouble->why)};
        source->strata_ = {name};
        return source;
      }
      applies &= first.applies;
      if (!applies) break;
      // Again, as the lives of the experiment will be.
      const auto begin = std::chrono::steady_clock::now();
      LATHE_RETURN_IF_ERROR(trial->measure(arm->command, arm->variant, arm->threads, arm->build_id, false).status());
      slower = std::max(slower, seconds_since(begin));
    }
    if (!applies) {
      source->left_out_.push_back(name + " (not taken by both)");
    } else if (slower > left && !source->trials_.empty()) {
      source->left_out_.push_back(name + " (no time)");
    } else {
      left -= slower;
      source->strata_.push_back(name);
      source->trials_.push_back(std::move(trial));
    }
  }
  if (source->trials_.empty()) return invalid("{}: no case that both arms take", op.name);
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
