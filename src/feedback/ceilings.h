#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/thread_pool.h"
#include "ops/workload.h"

// What this machine can do, measured: bandwidth by kind of traffic and working set, dot products by precision. Roofs
// are made of these, in the run in which they are used.

namespace lathe {

// The same thing measured several times. On a shared machine `best` is what the hardware can, `median` what one gets
// beside the neighbours: a roof uses the median, and a result that beats `best` is refused.
struct Rate {
  double median = 0, best = 0, half_iqr = 0;  // per second
};
Rate rate_of(std::vector<double> per_second);

struct DotPeak {
  Rate rate;
  std::string instruction;
};

// A buffer big enough to measure on, touched once; reused for all measurements of a process.
class CeilingBench {
 public:
  static Result<std::unique_ptr<CeilingBench>> create(int64_t bytes);
  int64_t bytes() const { return buffer_.bytes(); }

  // Bytes read and written per second over `working_set` bytes (an update counts each byte twice, a copy reads one half
  // and writes the other), the pool's threads taking equal parts.
  Rate bandwidth(ThreadPool& pool, Traffic traffic, int64_t working_set, int samples);
  // Multiplications and additions per second on all threads of the pool, by the fastest way there is. A precision's own
  // instruction needn't be that: some machines issue vdpbf16ps at a quarter of the rate of fp32 products.
  DotPeak dot_peak(ThreadPool& pool, Precision precision, int samples);
  // Reads `bytes`, so that what the caches held is gone.
  void flush(ThreadPool& pool, int64_t bytes);

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();
  DeviceBuffer buffer_;
};

// A roof: the time in which the measured ceilings allow a case's bytes and operations.
struct Roof {
  Rate bandwidth, peak;
  double us(const CaseInfo& info) const;          // by the medians
  double fastest_us(const CaseInfo& info) const;  // by the best: less is impossible
};

const char* traffic_name(Traffic traffic);
const char* precision_name(Precision precision);

}  // namespace lathe
