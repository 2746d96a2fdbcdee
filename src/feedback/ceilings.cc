#include "feedback/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "feedback/dot_loops.h"
#include "feedback/memory_loops.h"
#include "feedback/spread.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

// A sample is long enough for the clock, and short enough to fall between two interruptions now and then.
constexpr double kBandwidthSampleSeconds = 2e-3;
constexpr double kPeakSampleSeconds = 1e-3;
constexpr int64_t kGranule = 4096;

template <class F>
double seconds(F&& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A precision's own instruction, and fp32 products, which can stand in for bf16's.
std::vector<DotLoop> candidates(Precision precision) {
  const DotLoops loops = dot_loops();
  if (precision == Precision::kInt8) return {loops.int8};
  return precision == Precision::kFp32 ? std::vector{loops.fp32} : std::vector{loops.bf16, loops.fp32};
}

Rate loop_rate(ThreadPool& pool, const DotLoop& loop, int samples) {
  constexpr int64_t kTrial = 1000;
  const double trial = seconds([&] { loop.run(kTrial); });
  const int64_t iterations = std::max(kTrial, static_cast<int64_t>(kTrial * kPeakSampleSeconds / trial));
  std::vector<double> rates;
  for (int s = 0; s < samples; ++s) {
    const double took = seconds([&] { pool.run(pool.threads(), [&](int64_t, int) { loop.run(iterations); }); });
    rates.push_back(loop.flop_per_iteration * static_cast<double>(iterations) * pool.threads() / took);
  }
  return rate_of(rates);
}

// One pass of one thread over its part of the working set.
void pass(const MemoryLoops& loops, Traffic traffic, bool past_cache, char* part, int64_t bytes) {
  switch (traffic) {
    case Traffic::kRead:
      return loops.read(part, bytes);
    case Traffic::kUpdate:
      return loops.update(part, bytes);
    case Traffic::kCopy:
      return (past_cache ? loops.copy_past_cache : loops.copy)(part, part + bytes / 2, bytes / 2);
  }
}

}  // namespace

Rate rate_of(std::vector<double> per_second) {
  LATHE_CHECK(!per_second.empty());
  const Spread spread = spread_of(per_second);
  return {spread.median, *std::max_element(per_second.begin(), per_second.end()), spread.half_iqr};
}

Result<std::unique_ptr<CeilingBench>> CeilingBench::create(int64_t bytes) {
  auto bench = std::make_unique<CeilingBench>();
  LATHE_ASSIGN(bench->buffer_, DeviceBuffer::allocate(*bench->device_, bytes / kGranule * kGranule));
  std::memset(bench->buffer_.as<char>(), 1, bench->buffer_.bytes());
  return bench;
}

Rate CeilingBench::bandwidth(ThreadPool& pool, Traffic traffic, int64_t working_set, int samples) {
  const MemoryLoops loops = memory_loops();
  const int64_t part = std::min(working_set, buffer_.bytes()) / pool.threads() / (2 * kGranule) * (2 * kGranule);
  LATHE_CHECK(part > 0);
  const auto once = [&](bool past_cache, int passes) {
    return seconds([&] {
      pool.run(pool.threads(), [&](int64_t t, int) {
        for (int i = 0; i < passes; ++i) pass(loops, traffic, past_cache, buffer_.as<char>() + t * part, part);
      });
    });
  };
  const double moved = static_cast<double>(part) * pool.threads() * (traffic == Traffic::kUpdate ? 2 : 1);
  const auto measure = [&](bool past_cache) {
    const int passes = std::max(1, static_cast<int>(kBandwidthSampleSeconds / once(past_cache, 1)));
    std::vector<double> rates;
    for (int s = 0; s < samples; ++s) rates.push_back(moved * passes / once(past_cache, passes));
    return rate_of(rates);
  };
  const Rate plain = measure(false);
  if (traffic != Traffic::kCopy) return plain;
  // Small sets copy faster through the cache, large ones past it: the ceiling is the faster way.
  const Rate past_cache = measure(true);
  return past_cache.median > plain.median ? past_cache : plain;
}

DotPeak CeilingBench::dot_peak(ThreadPool& pool, Precision precision, int samples) {
  DotPeak best;
  for (const DotLoop& loop : candidates(precision))
    if (const Rate rate = loop_rate(pool, loop, samples); rate.median > best.rate.median)
      best = {rate, loop.instruction};
  return best;
}

void CeilingBench::flush(ThreadPool& pool, int64_t bytes) {
  const MemoryLoops loops = memory_loops();
  const int64_t part = std::min(bytes, buffer_.bytes()) / pool.threads() / kGranule * kGranule;
  pool.run(pool.threads(), [&](int64_t t, int) { loops.read(buffer_.as<char>() + t * part, part); });
}

namespace {

double time_us(const CaseInfo& info, double bandwidth, double peak) {
  return 1e6 * std::max(static_cast<double>(info.bytes) / bandwidth, static_cast<double>(info.flop) / peak);
}

}  // namespace

double Roof::us(const CaseInfo& info) const { return time_us(info, bandwidth.median, peak.median); }
double Roof::fastest_us(const CaseInfo& info) const { return time_us(info, bandwidth.best, peak.best); }

const char* traffic_name(Traffic traffic) {
  return traffic == Traffic::kRead ? "read" : traffic == Traffic::kUpdate ? "update" : "copy";
}
const char* precision_name(Precision precision) {
  return precision == Precision::kFp32 ? "fp32" : precision == Precision::kBf16 ? "bf16" : "int8";
}

}  // namespace lathe
