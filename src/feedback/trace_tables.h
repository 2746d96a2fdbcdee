#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "feedback/intervals.h"

// What every trace becomes, whoever recorded it: a few tables of plain rows. Times are nanoseconds of the row's track's
// clock; rows of different clocks are never compared. Sorted by begin where a row has one.
namespace lathe {

using NameId = uint32_t;  // into Trace::names; 0 is ""

class Names {
 public:
  Names() { id(""); }
  NameId id(std::string_view text);
  const std::string& text(NameId id) const { return texts_[id]; }
  // The id of a text that is there; 0 else.
  NameId find(std::string_view text) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::vector<std::string> texts_;
  std::unordered_map<std::string, NameId, Hash, std::equal_to<>> ids_;
};

enum class TrackKind : uint8_t { kThread, kDevice, kAsync };

// Where events stand in order: a thread, a queue (stream) of a device, or a lane of asynchronous spans.
struct Track {
  NameId process = 0, thread = 0;  // as the file spells them: "25738", "stream 7"
  NameId process_name = 0, name = 0;
  TrackKind kind = TrackKind::kThread;
  int device = -1, stream = -1;
  int clock = 0;
};

enum class SpanKind : uint8_t {
  kOperator,    // of a model: aten::addmm, kda_decode
  kRuntime,     // a call into a device's runtime or the system: cudaLaunchKernel
  kAnnotation,  // a name somebody gave to a stretch of time: ProfilerStep#3, step
  kFunction,    // of the host's language
  kOther,
};

struct Arg {
  NameId key = 0, value = 0;  // value as it stood in the file; nested values as their text
};

struct Span {
  int64_t begin = 0, end = 0;
  NameId name = 0, category = 0;
  int track = 0;
  int parent = -1;           // the span of the same track around this one
  int64_t correlation = -1;  // with the device operations it launched
  uint32_t first_arg = 0, args = 0;
  SpanKind kind = SpanKind::kOther;
  bool open = false;  // the file has no end of it: end is where the trace, or what encloses it, ends
  int64_t length() const { return end - begin; }
};

enum class DeviceOpKind : uint8_t { kKernel, kCopy, kSet, kSync };  // kSync: a wait, not work

struct DeviceOp {
  int64_t begin = 0, end = 0;
  NameId name = 0;
  int track = 0;
  int launch = -1;  // the span that launched it
  int64_t correlation = -1, bytes = -1;
  uint32_t first_arg = 0, args = 0;
  DeviceOpKind kind = DeviceOpKind::kKernel;
  int64_t length() const { return end - begin; }
  bool is_work() const { return kind != DeviceOpKind::kSync; }
};

struct Flow {
  int64_t from_time = 0, to_time = 0;
  int from_track = 0, to_track = 0;
  NameId name = 0;
};

struct CounterSample {
  int64_t time = 0;
  int track = 0;
  NameId name = 0;
  double value = 0;
};

struct SampleStack {
  int64_t time = -1;  // -1: the source has no times
  int track = 0;
  NameId stack = 0;  // frames from the outermost to the innermost, joined by ';'
  int64_t weight = 1;
};

enum class ThreadStateKind : uint8_t { kRunning, kRunnable, kBlocked };

struct ThreadState {
  int64_t begin = 0, end = 0;
  int track = 0;
  ThreadStateKind kind = ThreadStateKind::kRunning;
  NameId reason = 0;  // what it is blocked on, where known
};

struct LockInterval {
  int64_t begin = 0, end = 0;
  NameId lock = 0;
  int track = 0;
  int other = -1;         // of a wait: the track that held the lock when the wait began
  NameId span = 0;        // innermost span of this track around the begin
  NameId other_span = 0;  // of a wait: during which span the holder took it
  bool wait = false;      // else a hold
  int64_t length() const { return end - begin; }
};

struct Trace {
  std::string source;               // "lathe", "chrome", "pytorch", "nsight", "perf", "collapsed"
  std::vector<std::string> clocks;  // what each clock domain is
  Names names;
  std::vector<Track> tracks;
  std::vector<Span> spans;
  std::vector<Span> async_spans;  // may overlap on their track; no parents
  std::vector<DeviceOp> device_ops;
  std::vector<Flow> flows;
  std::vector<CounterSample> counters;
  std::vector<SampleStack> samples;
  std::vector<ThreadState> thread_states;
  std::vector<LockInterval> locks;
  std::vector<Arg> args;
  std::map<std::string, std::string> facts;  // of the whole file: "distributedInfo.rank" -> "1"
  std::vector<std::string> warnings;         // what was wrong with the file, and what was done about it
  int64_t lost_events = 0;                   // if not 0, sums are lower bounds
  bool truncated = false;

  const std::string& text(NameId id) const { return names.text(id); }
  // "python 25738 / 25738", "device 0 stream 7".
  std::string track_title(int track) const;
  // The value of a span's argument; "" where it has none.
  std::string_view arg(uint32_t first, uint32_t count, std::string_view key) const;
  std::string_view arg(const Span& s, std::string_view key) const { return arg(s.first_arg, s.args, key); }

  // First begin to last end over spans and device operations.
  Interval window() const;
  // Busy time of a device: kernels, copies and sets on all its streams.
  IntervalSet device_busy(int device) const;
  std::vector<int> devices() const;

  // After filling: sorts, finds parents, device operations' launches and during which span a lock was waited for.
  void finish();

 private:
  void find_parents();
  void link_launches();
  void place_locks();
};

// What begins in the window. Device operations belong where they were launched; by their own begin only in traces that
// say nothing of launches.
Trace part_of(const Trace& trace, Interval window);

// The innermost span of each track at a time; spans must be finished.
int innermost_span(const Trace& trace, int track, int64_t time);

}  // namespace lathe
