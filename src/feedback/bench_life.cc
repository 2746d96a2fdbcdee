#include "feedback/bench_life.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "feedback/case_memory.h"
#include "feedback/machine_facts.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kItemSeconds = 0.4;  // spent on one item in one life
constexpr int kFewestCalls = 5, kMostCalls = 400;
constexpr int kMostCopies = 64;
constexpr int kCeilingSamples = 3;  // before an item, and again behind it
constexpr int64_t kScratchBytes = int64_t{16} << 30;
constexpr int64_t kCeilingSet = int64_t{1} << 30;

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

  Result<std::optional<LifeTiming>> time(const BenchItem& item);

 private:
  Result<Copies> copies_of(const BenchItem& item);
  Result<double> call_us(AnyCase& one, int variant);
  Result<std::vector<double>> calls_us(const Copies& copies, const BenchItem& item);
  void measure_ceilings(const CaseInfo& info, std::vector<Rate>& bandwidth, std::vector<Rate>& peak);

  std::unique_ptr<Device> device_ = make_cpu_device();
  ThreadPool pool_;
  std::unique_ptr<CeilingBench> ceilings_;
  Arena scratch_;
  int64_t rotation_ = 0;
};

Result<Copies> Life::copies_of(const BenchItem& item) {
  LATHE_ASSIGN(CaseMemory first, CaseMemory::create(*device_, int64_t{64} << 30));
  auto built = first.build(*item.op, item.case_index, 1, 0);
  LATHE_ASSIGN(const Image image, first.image());
  const int64_t bytes = static_cast<int64_t>(image.size());
  const int64_t count = std::clamp(rotation_ / bytes, int64_t{2}, int64_t{kMostCopies});
  Copies copies;
  LATHE_ASSIGN(copies.memory, DeviceBuffer::allocate(*device_, count * bytes));
  for (int64_t i = 0; i < count; ++i) {
    char* to = copies.memory.as<char>() + i * bytes;
    std::memcpy(to, image.data(), bytes);
    copies.cases.push_back(built->moved(to - first.base()));
  }
  return copies;
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
Result<std::vector<double>> Life::calls_us(const Copies& copies, const BenchItem& item) {
  const int64_t missing = rotation_ - copies.memory.bytes();
  std::vector<double> us;
  double counted = 0;
  LATHE_RETURN_IF_ERROR(call_us(*copies.cases.front(), item.variant).status());
  while (static_cast<int>(us.size()) < kFewestCalls || (counted < kItemSeconds * 1e6 && us.size() < kMostCalls)) {
    if (missing > 0) ceilings_->flush(pool_, missing);
    for (size_t i = 0; i < copies.cases.size() && (counted < kItemSeconds * 1e6 || us.size() < kFewestCalls); ++i) {
      LATHE_ASSIGN(const double one, call_us(*copies.cases[i], item.variant));
      if (i > 0) us.push_back(one), counted += one;
    }
  }
  return us;
}

void Life::measure_ceilings(const CaseInfo& info, std::vector<Rate>& bandwidth, std::vector<Rate>& peak) {
  bandwidth.push_back(ceilings_->bandwidth(pool_, info.traffic, kCeilingSet, kCeilingSamples));
  peak.push_back(ceilings_->dot_peak(pool_, info.precision, 4 * kCeilingSamples).rate);
}

Rate joined(const std::vector<Rate>& rates) {
  Rate all;
  for (const Rate& r : rates)
    all.median += r.median / static_cast<double>(rates.size()), all.best = std::max(all.best, r.best);
  return all;
}

// Nothing where the variant doesn't take this case.
Result<std::optional<LifeTiming>> Life::time(const BenchItem& item) {
  LATHE_ASSIGN(const Copies copies, copies_of(item));
  if (!copies.cases.front()->applies(item.variant)) return std::optional<LifeTiming>();
  std::vector<Rate> bandwidth, peak;
  measure_ceilings(item.info(), bandwidth, peak);
  LATHE_ASSIGN(std::vector<double> us, calls_us(copies, item));
  measure_ceilings(item.info(), bandwidth, peak);
  std::sort(us.begin(), us.end());
  return std::optional(LifeTiming{.median_us = us[us.size() / 2],
                                  .calls = static_cast<int>(us.size()),
                                  .roof = {joined(bandwidth), joined(peak)},
                                  .rotated_bytes = std::max(rotation_, copies.memory.bytes())});
}

}  // namespace

int64_t rotation_bytes() { return std::min(4 * machine_facts().last_cache_bytes, available_memory_bytes() / 4); }

Result<std::vector<LifeTiming>> bench_life(const std::vector<BenchItem>& plan, int threads,
                                           const LifeProgress& progress) {
  LATHE_ASSIGN(std::unique_ptr<Life> life, Life::create(threads));
  std::vector<LifeTiming> timings;
  for (int i = 0; i < static_cast<int>(plan.size()); ++i) {
    if (progress) progress(i);
    Result<std::optional<LifeTiming>> timing = life->time(plan[i]);
    if (!timing.is_ok()) return timing.status().within(fmt::format("{} {}", plan[i].op->name, plan[i].info().name));
    if (!*timing) continue;
    timings.push_back(**timing);
    timings.back().item = i;
  }
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
