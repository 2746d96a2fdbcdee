#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/number_row.h"

namespace lathe {

// Read, in-place update and copy at working sets from 1 MB to 1 GB, and dot peaks of fp32, bf16 and int8, each with one
// thread and with `threads`. Rows: op "machine", variant the instructions, case such as "read_64MB_threads2"; median_us
// is the time of one pass (of 1e9 operations for a peak), `bytes` or `flop` what it moves or computes, and the spread
// is that of the samples within this process. Told before each measurement: what.
using MachineProgress = std::function<void(const std::string& what, int done, int all)>;
struct MachineOptions {
  int threads = 1;
  int64_t largest_bytes = int64_t{1} << 30;
  int samples = 9;
};
Result<std::vector<NumberRow>> bench_machine(const MachineOptions& options, const MachineProgress& progress);

}  // namespace lathe
