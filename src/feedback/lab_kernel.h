#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/lab_progress.h"
#include "feedback/paired_ratio.h"
#include "feedback/replay_tiles_lab.h"

// Case study: a replay step of KDA is far from the time in which its bytes could be read. The lab counts what it
// computes against what the result needs, shows that bytes aren't what it waits for, and takes the superfluous work out
// step by step, each with its measured ratio. It claims nothing about plain decode.
namespace lathe {

struct KernelLabOptions {
  bool mended = false;
  int blocks = 9;  // each: every form once, in random order
  uint64_t seed = 1;
  int heads = 0;  // with a state each; 0: states of four times the last cache, so that every head comes from memory
};

struct KernelLabReport {
  // One form of the kernel.
  struct Form {
    std::string exchange;  // what was taken out of the form before: "", "divisions", ...
    ReplayTilesOptions options;
    ReplayTilesWork work;
    double us = 0;       // of a head, median
    double warm_us = 0;  // the same head again and again, its bytes in the nearest cache
    double error = 0;    // RMS(err)/RMS(reference) of o against doubles
    PairedRatio ratio;   // over the form before
  };

  bool mended = false;
  double bytes_per_s = 0;   // measured: one thread that reads
  double roof_us = 0;       // of a head: bytes of the start at that rate
  std::vector<Form> forms;  // the start first
  PairedRatio all;          // the last form over the start
  double repeated = 1;      // exponentials of the start over those of one tile in the same form
  bool compute_bound = false;
  bool proved = false;
  bool defect = false;
  std::string verdict;
  double seconds = 0;
};

Result<KernelLabReport> run_kernel_lab(const KernelLabOptions& options, const LabProgress& progress);

std::string to_text(const KernelLabReport& report);
nlohmann::json to_json(const KernelLabReport& report);

}  // namespace lathe
