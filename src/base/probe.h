#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

// Probes: what the engine says about its own time. A Recorder is passed to whoever has something to say (OpContext,
// ThreadPool, TracedMutex); a null pointer is off, and costs a test and a branch. Each thread writes to a ring of its
// own.
namespace lathe {

enum class ProbeKind : uint8_t {
  kBegin,
  kEnd,
  kDeviceBegin,  // of work on a device's queue
  kDeviceEnd,
  kAsyncBegin,  // of something in flight, such as a transfer or a queued request; value tells several apart
  kAsyncEnd,    // may come from another thread
  kCounter,     // value
  kLockWait,    // value: system id of the thread that holds it
  kLockAcquire,
  kLockRelease,
};

// Where in the work a span stands; -1: not there.
struct ProbePlace {
  int64_t step = -1;
  int layer = -1;
};

// Names are static: a ring keeps pointers.
struct ProbeEvent {
  int64_t time_ns = 0;  // of the monotonic clock
  const char* name = nullptr;
  const char* variant = nullptr;
  int64_t value = -1;  // rows of an operator, bytes of a transfer, ...
  int64_t step = -1;
  int32_t layer = -1;
  ProbeKind kind = ProbeKind::kBegin;
};

enum class ProbeLevel : uint8_t {
  kOff,
  kCounters,  // how often each name came; no clock is read
  kFull,
};

// A delay added on purpose, to see whether what is named matters: at the begin of a span, while holding a lock, or
// before waiting for one. "sparse_mla=200", "hold:queue=50", "wait:queue=50", in microseconds.
struct Injection {
  enum class Where { kSpan, kHold, kWait };
  Where where = Where::kSpan;
  std::string name;
  int64_t delay_us = 0;
  static Result<Injection> parse(std::string_view text);
  std::string text() const;
};

// One thread's events, in the order of their times. Written by that thread alone; may be read at any time.
class ProbeRing {
 public:
  static constexpr int64_t kBlockEvents = 1 << 15;
  static constexpr int64_t kMostBlocks = 256;

  ProbeRing(int64_t most_events, int64_t thread_id, std::string thread_name)
      : most_events_(most_events), thread_id_(thread_id), thread_name_(std::move(thread_name)) {}
  ~ProbeRing();
  ProbeRing(const ProbeRing&) = delete;

  void push(const ProbeEvent& event);
  void count(const char* name, const char* variant);  // level kCounters

  int64_t size() const { return size_.load(std::memory_order_acquire); }
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  const ProbeEvent& at(int64_t i) const {
    return blocks_[i / kBlockEvents].load(std::memory_order_acquire)[i % kBlockEvents];
  }
  int64_t thread_id() const { return thread_id_; }
  const std::string& thread_name() const { return thread_name_; }
  std::map<std::pair<std::string, std::string>, int64_t> counts() const;

 private:
  struct Count {
    std::atomic<const char*> name{nullptr};
    std::atomic<const char*> variant{nullptr};
    std::atomic<int64_t> count{0};
  };
  static constexpr size_t kCounts = 1024;

  int64_t most_events_, thread_id_;
  std::string thread_name_;
  std::atomic<int64_t> size_{0}, lost_{0};
  std::array<std::atomic<ProbeEvent*>, kMostBlocks> blocks_{};
  std::array<Count, kCounts> counts_{};
};

class Recorder {
 public:
  struct Options {
    ProbeLevel level = ProbeLevel::kFull;
    int64_t most_events_per_thread = 4 << 20;  // beyond that events are lost, and counted
    std::vector<Injection> injections;
  };
  explicit Recorder(Options options);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // What probes call; see ProbeSpan.
  void event(ProbeKind kind, const char* name, const char* variant = nullptr, int64_t value = -1,
             ProbePlace place = {});
  void counter(const char* name, int64_t value) { event(ProbeKind::kCounter, name, nullptr, value); }
  // Waits as long as an injection for this place says; usually not at all.
  void inject(Injection::Where where, const char* name);

  const Options& options() const { return options_; }
  int64_t lost_events() const;
  std::vector<const ProbeRing*> rings() const;  // of all threads that ever wrote

 private:
  ProbeRing& ring();

  Options options_;
  uint64_t id_;  // never used twice, unlike an address
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ProbeRing>> rings_;
};

// A stretch of time on this thread, from here to the end of the scope.
class ProbeSpan {
 public:
  ProbeSpan(Recorder* recorder, const char* name, const char* variant = nullptr, int64_t value = -1,
            ProbePlace place = {})
      : recorder_(recorder), name_(name) {
    if (recorder_) [[unlikely]]
      begin(*recorder_, name, variant, value, place);
  }
  ~ProbeSpan() {
    if (recorder_) [[unlikely]]
      end(*recorder_, name_);
  }
  ProbeSpan(const ProbeSpan&) = delete;

 private:
  // Static, so that a span that is off lives in a register and is never written to memory.
  static void begin(Recorder& recorder, const char* name, const char* variant, int64_t value, ProbePlace place);
  static void end(Recorder& recorder, const char* name);

  Recorder* recorder_;
  const char* name_;
};

int64_t monotonic_ns();
int64_t system_thread_id();

}  // namespace lathe
