#include "feedback/bench_machine.h"

#include <set>

#include "feedback/ceilings.h"
#include "feedback/memory_loops.h"

namespace lathe {

namespace {

constexpr int64_t kSmallest = int64_t{1} << 20;
constexpr double kFlop = 1e9;

NumberRow machine_row(const std::string& variant, const std::string& name, const Rate& rate, double amount) {
  NumberRow row{.op = "machine", .variant = variant, .case_name = name, .device = "cpu"};
  row.median_us = amount / rate.median * 1e6;
  row.spread_us = rate.half_iqr / rate.median * *row.median_us;
  row.note = fmt::format("best sample {:.4g} per second", rate.best);
  return row;
}

class MachineBench {
 public:
  MachineBench(const MachineOptions& options, const MachineProgress& progress, CeilingBench& ceilings)
      : options_(options), progress_(progress), ceilings_(ceilings) {
    for (int64_t set = kSmallest; set <= options.largest_bytes; set *= 4) ++all_;
    all_ = (all_ + 1) * 3 * static_cast<int>(std::set{1, options.threads}.size());
  }

  std::vector<NumberRow> run() {
    for (int threads : std::set{1, options_.threads}) {
      ThreadPool pool(threads);
      for (Traffic traffic : {Traffic::kRead, Traffic::kUpdate, Traffic::kCopy})
        for (int64_t set = kSmallest; set <= options_.largest_bytes; set *= 4) bandwidth(pool, traffic, set);
      for (Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) peak(pool, precision);
    }
    return std::move(rows_);
  }

 private:
  void tell(const std::string& what) {
    if (progress_) progress_(what, done_, all_);
    ++done_;
  }
  void bandwidth(ThreadPool& pool, Traffic traffic, int64_t set) {
    const std::string name = fmt::format("{}_{}MB_threads{}", traffic_name(traffic), set >> 20, pool.threads());
    tell(name);
    const double moved = static_cast<double>(set) * (traffic == Traffic::kUpdate ? 2 : 1);
    rows_.push_back(machine_row(memory_loops().instructions, name,
                                ceilings_.bandwidth(pool, traffic, set, options_.samples), moved));
    rows_.back().bytes = moved;
  }
  void peak(ThreadPool& pool, Precision precision) {
    const std::string name = fmt::format("{}_peak_threads{}", precision_name(precision), pool.threads());
    tell(name);
    const DotPeak peak = ceilings_.dot_peak(pool, precision, 4 * options_.samples);
    rows_.push_back(machine_row(peak.instruction, name, peak.rate, kFlop));
    rows_.back().flop = kFlop;
  }

  const MachineOptions& options_;
  const MachineProgress& progress_;
  CeilingBench& ceilings_;
  std::vector<NumberRow> rows_;
  int done_ = 0, all_ = 0;
};

}  // namespace

Result<std::vector<NumberRow>> bench_machine(const MachineOptions& options, const MachineProgress& progress) {
  LATHE_ASSIGN(std::unique_ptr<CeilingBench> ceilings, CeilingBench::create(options.largest_bytes));
  return MachineBench(options, progress, *ceilings).run();
}

}  // namespace lathe
