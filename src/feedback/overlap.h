#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/critical_path.h"
#include "feedback/trace_summary.h"

// What of a trace ran at the same time, what didn't though it could, what was idle, and what the end waited for.
namespace lathe {

struct OverlapOptions {
  std::string a, b;    // names, or parts of names, of spans and device operations; "": no pair of one's own
  std::string within;  // only inside an instance of the spans of this name
  int instance = 1;
};

struct SetOverlap {
  std::string a, b;
  int64_t a_ns = 0, b_ns = 0, both_ns = 0, either_ns = 0;
  int64_t expected_ns = 0;  // if neither minded the other: a·b/window
};

// Two asynchronous sets of intervals that take turns. The lock is named if the trace's lock probes know it.
struct NeverOverlap {
  SetOverlap sets;
  int64_t turns = 0;  // how often one followed the other
  std::string lock, holder, holder_span, held_across, waiter;
  int64_t waited_ns = 0;
  bool ordered_by_events = false;  // one waits for the other's events: no lock is needed to explain it
};

struct OverlapReport {
  std::string source;
  std::vector<std::string> warnings;
  int64_t lost_events = 0;
  Interval window;
  std::optional<SetOverlap> asked;
  std::vector<SetOverlap> pairs;  // of streams and asynchronous lanes, by how long the shorter one is
  std::vector<NeverOverlap> never;
  std::map<std::string, int64_t> shares;  // of the window: each moment once; "idle" where nothing ran
  std::vector<DeviceTime> devices;
  std::vector<LockTime> locks;
  CriticalPath path;
  std::vector<std::string> findings;  // plain sentences with their level of proof; empty for a healthy trace
};

Result<OverlapReport> find_overlap(const Trace& trace, const OverlapOptions& options);

std::string to_text(const OverlapReport& report);
nlohmann::json to_json(const OverlapReport& report, const Trace& trace);

}  // namespace lathe
