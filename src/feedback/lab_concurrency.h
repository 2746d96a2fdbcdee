#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/lab_progress.h"
#include "feedback/paired_ratio.h"

// Case study: a prefill that sends its cache rows while it runs is slower than one that doesn't. The lab measures the
// rule, records a trace, lets the trace name the lock, and proves it by injected delays; on the mended twin it finds no
// defect.
namespace lathe {

struct ConcurrencyLabOptions {
  bool mended = false;
  int blocks = 9;  // each: prefill alone and with transfer, in random order
  uint64_t seed = 1;
  std::string trace_file;  // also keep the trace; "": don't
};

// How much later the last chunk arrives than the prefill alone would end, under a dose of delay.
struct DelayEffect {
  std::string where;  // "attention" (nobody holds the lock) or "hold:work queue"
  int64_t delay_us = 0;
  double excess_ms = 0;
};

struct ConcurrencyLabReport {
  bool mended = false;
  PairedRatio rule;                   // with transfer over alone
  bool rule_holds = false;            // the whole interval lies below 5 %
  bool equivalent = false;            // and within 1 %
  std::vector<std::string> findings;  // of the trace
  std::string lock, holder, holder_span, held_across, waiter;
  std::vector<DelayEffect> effects;  // only where the rule fails
  bool proved = false;               // the same delay mends it where the lock is free, and doesn't where it is held
  std::string verdict;               // "no defect", "can't tell", or the cause with its address
  bool defect = false;
  double seconds = 0;
};

Result<ConcurrencyLabReport> run_concurrency_lab(const ConcurrencyLabOptions& options, const LabProgress& progress);

std::string to_text(const ConcurrencyLabReport& report);
nlohmann::json to_json(const ConcurrencyLabReport& report);

}  // namespace lathe
