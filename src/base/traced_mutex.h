#pragma once

#include <atomic>
#include <mutex>

#include "base/probe.h"

namespace lathe {

// A mutex that says who waited for whom, and how long it was held. Every lock that two subsystems share is one. Works
// with std::lock_guard, std::unique_lock and std::condition_variable_any.
class TracedMutex {
 public:
  // `name` is static. Without a recorder it is a std::mutex and a branch.
  explicit TracedMutex(const char* name, Recorder* recorder = nullptr) : name_(name), recorder_(recorder) {}
  TracedMutex(const TracedMutex&) = delete;

  void lock() {
    if (recorder_) [[unlikely]]
      return traced_lock();
    mutex_.lock();
  }
  bool try_lock();
  void unlock() {
    if (recorder_) [[unlikely]]
      return traced_unlock();
    mutex_.unlock();
  }

 private:
  void traced_lock();
  void traced_unlock();
  void acquired();

  const char* name_;
  Recorder* recorder_;
  std::mutex mutex_;
  std::atomic<int64_t> holder_{-1};  // system id of the thread; only told, never decided by
};

}  // namespace lathe
