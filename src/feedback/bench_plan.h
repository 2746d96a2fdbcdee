#pragma once

#include <string>
#include <vector>

#include "ops/workload.h"

// What `lathe bench ops` times, and in which order: the same in the parent and in every child process.

namespace lathe {

struct BenchOptions {
  std::string ops = "*";    // glob over operator names
  std::string cases = "*";  // glob over case names
  DeviceKind device = DeviceKind::kCpu;  // or kCuda
  int threads = 1;
  int lives = 5;                     // fresh processes; one number a life
  const Choices* choices = nullptr;  // an operator that has a choice is timed by that variant alone

  const char* device_name() const { return device == DeviceKind::kCuda ? "cuda" : "cpu"; }
};

struct BenchItem {
  const AnyOp* op;
  int case_index;
  int variant;
  const CaseInfo& info() const { return op->cases[case_index]; }
  const std::string& variant_name() const { return op->variants[variant]; }
};

// Every case of real size by every variant but the oracle, which is written to be read; the oracle where it is chosen
// or alone. Whether a variant applies shows when the case is built.
Result<std::vector<BenchItem>> bench_plan(std::span<const AnyOp> ops, const BenchOptions& options);

}  // namespace lathe
