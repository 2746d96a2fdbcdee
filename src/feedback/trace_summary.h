#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "feedback/trace_tables.h"

// One screen about a trace: what took the time, on which thread or device, and who waited for whom.
namespace lathe {

struct NameTime {
  std::string name;
  int64_t count = 0, total_ns = 0, self_ns = 0;  // self: without what ran inside
};

struct TrackTime {
  std::string track;
  int64_t busy_ns = 0, spans = 0;
};

struct DeviceTime {
  int device = 0;
  int64_t kernels = 0, kernel_sum_ns = 0, copies = 0, sets = 0;
  int64_t busy_ns = 0, extent_ns = 0, idle_ns = 0;  // extent: first begin to last end of its work
  int64_t gaps = 0, longest_gap_ns = 0;
};

struct LockTime {
  std::string lock;
  int64_t holds = 0, hold_ns = 0, waits = 0, wait_ns = 0;
  int64_t longest_contended_hold_ns = 0;  // while somebody waited
  std::string holder, holder_span;        // of that hold
  std::string held_across;                // a blocking call that takes half or more of that hold; "" if none
  std::vector<std::pair<std::string, int64_t>> waiters;  // thread and time, longest first
};

struct TraceSummary {
  std::string source;
  Interval window;
  int64_t lost_events = 0;
  int64_t host_spans = 0, device_ops = 0;
  std::vector<std::string> warnings;
  std::vector<NameTime> steps;      // spans that repeat as name#number, in order: one row each
  std::vector<NameTime> operators;  // and calls, by self time
  std::vector<NameTime> kernels;    // by total time
  std::vector<TrackTime> tracks;
  std::vector<DeviceTime> devices;
  std::vector<LockTime> locks;
  std::vector<NameTime> samples;  // innermost frames of sampled stacks; times are weights
  std::vector<NameTime> states;   // running, runnable, blocked by thread
};

TraceSummary summarise(const Trace& trace);
std::vector<LockTime> lock_times(const Trace& trace);
std::vector<DeviceTime> device_times(const Trace& trace);
// Length of each span without its children's.
std::vector<int64_t> self_times(const Trace& trace);

std::string to_text(const TraceSummary& summary, int rows);
nlohmann::json to_json(const TraceSummary& summary);

// "12.3 ms", "840 us": three digits that matter.
std::string duration_text(int64_t ns);
// At most `width` columns, with "..." in the middle where something was left out.
std::string shortened(const std::string& name, size_t width);

}  // namespace lathe
