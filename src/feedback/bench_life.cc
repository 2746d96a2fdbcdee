#include "feedback/bench_life.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "feedback/case_memory.h"
#include "feedback/machine_facts.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

// Spent on an operator in one life, in parts for its cases and variants.
constexpr double kOpSeconds = 1, kMostItemSeconds = 0.4, kLeastItemSeconds = 0.03;
constexpr int kFewestCalls = 5, kMostCalls = 400;
constexpr int kMostCopies = 64;
constexpr int kCeilingSamples = 3;  // before the first item that needs one, and again behind the last
constexpr int64_t kScratchBytes = int64_t{16} << 30;
constexpr int64_t kCeilingSet = int64_t{256} << 20;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The case in memory, and copies of it further on.
struct Copies {
  DeviceBuffer memory;
  std::vector<std::unique_ptr<AnyCase>> cases;
};

class Life {
 public:
  static Result<std::unique_ptr<Life>> create(int threads) {
    auto life = std::make_unique<Life>(threads);
    life->rotation_ = rotation_bytes();
    LATHE_ASSIGN(life->ceilings_, CeilingBench::create(std::max(life->rotation_, int64_t{64} << 20)));
    LATHE_ASSIGN(life->scratch_, Arena::create(*life->device_, kScratchBytes));
    return life;
  }
  explicit Life(int threads) : pool_(threads) {}

  // Calls for so long.
  Result<std::optional<LifeTiming>> time(const BenchItem& item, double seconds);
  // Once before the first item that needs them, and again behind the last.
  void measure_ceilings(const CaseInfo& info);
  bool roof_is_half_known(const CaseInfo& info) const {
    return bandwidth_.at(info.traffic).size() < 2 || peak_.at(info.precision).size() < 2;
  }
  Roof roof(const CaseInfo& info) const;

 private:
  Status build_copies(const BenchItem& item);
  Result<double> call_us(AnyCase& one, int variant);
  Result<std::vector<double>> calls_us(int variant, double seconds);

  std::unique_ptr<Device> device_ = make_cpu_device();
  ThreadPool pool_;
  std::unique_ptr<CeilingBench> ceilings_;
  Arena scratch_;
  int64_t rotation_ = 0;
  const AnyOp* op_ = nullptr;  // whose case the copies are of
  int case_index_ = -1;
  Copies copies_;
  std::map<Traffic, std::vector<Rate>> bandwidth_;
  std::map<Precision, std::vector<Rate>> peak_;
};

// Variants of a case stand beside each other in the plan: they share its copies.
Status Life::build_copies(const BenchItem& item) {
  if (op_ == item.op && case_index_ == item.case_index) return Status::ok();
  LATHE_ASSIGN(CaseMemory first, CaseMemory::create(*device_, int64_t{64} << 30));
  auto built = first.build(*item.op, item.case_index, 1, 0);
  LATHE_ASSIGN(const Image image, first.image());
  const int64_t bytes = static_cast<int64_t>(image.size());
  const int64_t count = std::clamp(rotation_ / bytes, int64_t{2}, int64_t{kMostCopies});
  copies_ = {};
  LATHE_ASSIGN(copies_.memory, DeviceBuffer::allocate(*device_, count * bytes));
  for (int64_t i = 0; i < count; ++i) {
    char* to = copies_.memory.as<char>() + i * bytes;
    std::memcpy(to, image.data(), bytes);
    copies_.cases.push_back(built->moved(to - first.base()));
  }
  op_ = item.op, case_index_ = item.case_index;
  return Status::ok();
}

Result<double> Life::call_us(AnyCase& one, int variant) {
  OpContext ctx{.device = device_.get(), .pool = &pool_, .scratch = &scratch_};
  const auto begin = Clock::now();
  LATHE_RETURN_IF_ERROR(one.run(ctx, variant));
  const double us = seconds_since(begin) * 1e6;
  scratch_.reset();
  return us;
}

// Rounds over the copies. Before each round the caches are filled with other data; its first call, which wakes the
// workers, isn't counted.
Result<std::vector<double>> Life::calls_us(int variant, double seconds) {
  const int64_t missing = rotation_ - copies_.memory.bytes();
  std::vector<double> us;
  double counted = 0;
  const auto goes_on = [&] {
    return static_cast<int>(us.size()) < kFewestCalls || (counted < seconds * 1e6 && us.size() < kMostCalls);
  };
  LATHE_RETURN_IF_ERROR(call_us(*copies_.cases.front(), variant).status());
  while (goes_on()) {
    if (missing > 0) ceilings_->flush(pool_, missing);
    for (size_t i = 0; i < copies_.cases.size() && goes_on(); ++i) {
      LATHE_ASSIGN(const double one, call_us(*copies_.cases[i], variant));
      if (i > 0) us.push_back(one), counted += one;
    }
  }
  return us;
}

void Life::measure_ceilings(const CaseInfo& info) {
  bandwidth_[info.traffic].push_back(ceilings_->bandwidth(pool_, info.traffic, kCeilingSet, kCeilingSamples));
  peak_[info.precision].push_back(ceilings_->dot_peak(pool_, info.precision, 4 * kCeilingSamples).rate);
}

Rate joined(const std::vector<Rate>& rates) {
  Rate all;
  for (const Rate& r : rates)
    all.median += r.median / static_cast<double>(rates.size()), all.best = std::max(all.best, r.best);
  return all;
}

Roof Life::roof(const CaseInfo& info) const {
  return {joined(bandwidth_.at(info.traffic)), joined(peak_.at(info.precision))};
}

// Nothing where the variant doesn't take this case.
Result<std::optional<LifeTiming>> Life::time(const BenchItem& item, double seconds) {
  LATHE_RETURN_IF_ERROR(build_copies(item));
  if (!copies_.cases.front()->applies(item.variant)) return std::optional<LifeTiming>();
  if (!bandwidth_.contains(item.info().traffic) || !peak_.contains(item.info().precision))
    measure_ceilings(item.info());
  LATHE_ASSIGN(std::vector<double> us, calls_us(item.variant, seconds));
  std::sort(us.begin(), us.end());
  return std::optional(LifeTiming{.median_us = us[us.size() / 2],
                                  .calls = static_cast<int>(us.size()),
                                  .roof = {},
                                  .rotated_bytes = std::max(rotation_, copies_.memory.bytes())});
}

}  // namespace

int64_t rotation_bytes() { return std::min(4 * machine_facts().last_cache_bytes, available_memory_bytes() / 4); }

Result<std::vector<LifeTiming>> bench_life(const std::vector<BenchItem>& plan, int threads,
                                           const LifeProgress& progress) {
  LATHE_ASSIGN(std::unique_ptr<Life> life, Life::create(threads));
  std::map<const AnyOp*, int> items_of;
  for (const BenchItem& item : plan) ++items_of[item.op];
  std::vector<LifeTiming> timings;
  for (int i = 0; i < static_cast<int>(plan.size()); ++i) {
    if (progress) progress(i);
    const double seconds = std::clamp(kOpSeconds / items_of[plan[i].op], kLeastItemSeconds, kMostItemSeconds);
    Result<std::optional<LifeTiming>> timing = life->time(plan[i], seconds);
    if (!timing.is_ok()) return timing.status().within(fmt::format("{} {}", plan[i].op->name, plan[i].info().name));
    if (!*timing) continue;
    timings.push_back(**timing);
    timings.back().item = i;
  }
  for (const LifeTiming& t : timings)
    if (life->roof_is_half_known(plan[t.item].info())) life->measure_ceilings(plan[t.item].info());
  for (LifeTiming& t : timings) t.roof = life->roof(plan[t.item].info());
  return timings;
}

namespace {

nlohmann::json rate_json(const Rate& r) { return {r.median, r.best}; }
Rate rate_from(const nlohmann::json& j) { return {j.at(0), j.at(1)}; }

}  // namespace

nlohmann::json to_json(const LifeTiming& t) {
  return {{"item", t.item},
          {"median_us", t.median_us},
          {"calls", t.calls},
          {"bandwidth", rate_json(t.roof.bandwidth)},
          {"peak", rate_json(t.roof.peak)},
          {"rotated_bytes", t.rotated_bytes}};
}

LifeTiming life_timing(const nlohmann::json& j) {
  return {.item = j.at("item"),
          .median_us = j.at("median_us"),
          .calls = j.at("calls"),
          .roof = {rate_from(j.at("bandwidth")), rate_from(j.at("peak"))},
          .rotated_bytes = j.at("rotated_bytes")};
}

}  // namespace lathe
