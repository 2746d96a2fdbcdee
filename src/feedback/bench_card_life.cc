#include <algorithm>

#include "feedback/bench_life.h"
#include "feedback/case_memory.h"

namespace lathe {

namespace {

constexpr int64_t kScratchBytes = int64_t{4} << 30, kCaseBytes = int64_t{16} << 30;
constexpr int64_t kRotationBytes = int64_t{256} << 20;  // 4 times the second-level cache of 60 MB, and a little
constexpr int kMostCopies = 64, kRounds = 9;

// An H200 by its data sheet.
Roof card_roof(const CaseInfo& info) {
  const auto rate = [](double per_second) { return Rate{.median = per_second, .best = per_second}; };
  switch (info.precision) {
    case Precision::kFp32:
      return {rate(4.8e12), rate(67e12)};
    case Precision::kBf16:
      return {rate(4.8e12), rate(989e12)};
    case Precision::kInt8:
      break;
  }
  return {rate(4.8e12), rate(1979e12)};
}

// Nothing where the variant doesn't take this case.
Result<std::optional<LifeTiming>> time_item(Device& device, const BenchItem& item) {
  LATHE_ASSIGN(CaseMemory first, CaseMemory::create(device, kCaseBytes));
  LATHE_ASSIGN(Arena scratch, Arena::create(device, kScratchBytes));
  const auto built = first.build(*item.op, item.case_index, 1, 0);
  if (!built->applies(item.variant)) return std::optional<LifeTiming>();
  const int64_t bytes = first.used_bytes();
  const int64_t count = std::clamp(kRotationBytes / bytes, int64_t{2}, int64_t{kMostCopies});
  LATHE_ASSIGN(DeviceBuffer memory, DeviceBuffer::allocate(device, count * bytes));
  std::vector<std::unique_ptr<AnyCase>> copies;
  for (int64_t i = 0; i < count; ++i) {
    char* to = memory.as<char>() + i * bytes;
    device.copy(to, first.base(), bytes);
    copies.push_back(built->moved(to - first.base()));
  }
  ThreadPool pool(1);
  OpContext ctx{.device = &device, .pool = &pool, .scratch = &scratch};
  const auto round = [&]() -> Status {
    for (const auto& one : copies) {
      scratch.reset();
      LATHE_RETURN_IF_ERROR(one->run(ctx, item.variant));
    }
    return Status::ok();
  };
  LATHE_RETURN_IF_ERROR(round());  // once plainly: a failure says more, and every kernel has been loaded
  LATHE_RETURN_IF_ERROR(device.synchronize());
  std::vector<double> us;
  for (int i = 0; i < kRounds; ++i) {
    LATHE_ASSIGN(const double all, device.time_us(round));
    us.push_back(all / static_cast<double>(count));
  }
  std::sort(us.begin(), us.end());
  return std::optional(LifeTiming{.median_us = us[us.size() / 2],
                                  .calls = static_cast<int>(count) * kRounds,
                                  .roof = card_roof(item.info()),
                                  .rotated_bytes = count * bytes});
}

}  // namespace

Result<std::vector<LifeTiming>> bench_card_life(const std::vector<BenchItem>& plan, const LifeProgress& progress) {
  LATHE_ASSIGN(const std::unique_ptr<Device> device, make_cuda_device());
  std::vector<LifeTiming> timings;
  for (int i = 0; i < static_cast<int>(plan.size()); ++i) {
    if (progress) progress(i);
    Result<std::optional<LifeTiming>> timing = time_item(*device, plan[i]);
    if (!timing.is_ok()) return timing.status().within(fmt::format("{} {}", plan[i].op->name, plan[i].info().name));
    if (!*timing) continue;
    timings.push_back(**timing);
    timings.back().item = i;
  }
  return timings;
}

}  // namespace lathe
