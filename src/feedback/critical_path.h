#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "feedback/trace_tables.h"

// The longest chain of work and delay through a stretch of a trace: what would have to become faster for the stretch to
// end earlier. Events are nodes at their begin and end; edges are
//   run      from one end of an event to the next on its thread or within a kernel; weighs its time
//   launch   from a call to the kernel it launched, where nothing before it on the stream was still running
//   gap      between neighbours on a stream, where the later one waited for the earlier one
//   wait     from a kernel's end to the end of the call that waited for it, from a kernel that others were told to wait
//            for, or from a lock's release to the end of the wait for it; weighs nothing, as the time was spent
//            elsewhere
//   follow   between calls of a thread with nothing around them; weighs nothing, as nobody knows what lay between
// Membership bounds the gain from making something faster; it doesn't prove it (level A3).
namespace lathe {

enum class PathEdge { kRun, kLaunch, kGap, kWait, kFollow };
const char* path_edge_name(PathEdge edge);

struct PathStep {
  PathEdge edge = PathEdge::kRun;
  int64_t ns = 0;   // what the edge weighs
  int span = -1;    // whose time it is: a span, or
  int device = -1;  // a device operation; both -1: nobody's
  bool operator==(const PathStep&) const = default;
};

struct CriticalPath {
  int64_t nodes = 0, edges = 0, events = 0;
  int64_t ns = 0;  // all edges' weights
  Interval window;
  std::vector<PathStep> steps;  // in order of time
  // Shares, largest first: "run aten::conv2d", "gap on device 0 stream 7".
  struct Share {
    std::string what;
    int64_t ns = 0, count = 0;
  };
  std::vector<Share> shares;
  // Every edge of the graph, for questions about one: launches and gaps by device operation (-1: none).
  std::vector<int64_t> launch_ns, gap_ns;
};

// Whether a call by this name returns only when the device is done: its time is the device's.
bool waits_for_device(std::string_view call);

// Over the events that begin in the window, and the device operations they launched.
CriticalPath critical_path(const Trace& trace, Interval window);

// Instance 1, 2, ... of the spans whose name contains `name`. A span around another of the same name is the loop around
// the instances, not one of them. Nothing if there are fewer.
std::optional<Interval> instance_of(const Trace& trace, const std::string& name, int instance);

}  // namespace lathe
