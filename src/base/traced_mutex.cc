#include "base/traced_mutex.h"

namespace lathe {

void TracedMutex::acquired() {
  holder_.store(system_thread_id(), std::memory_order_relaxed);
  recorder_->event(ProbeKind::kLockAcquire, name_);
  recorder_->inject(Injection::Where::kHold, name_);
}

void TracedMutex::traced_lock() {
  recorder_->inject(Injection::Where::kWait, name_);
  if (!mutex_.try_lock()) {
    recorder_->event(ProbeKind::kLockWait, name_, nullptr, holder_.load(std::memory_order_relaxed));
    mutex_.lock();
  }
  acquired();
}

bool TracedMutex::try_lock() {
  if (!mutex_.try_lock()) return false;
  if (recorder_) [[unlikely]]
    acquired();
  return true;
}

void TracedMutex::traced_unlock() {
  holder_.store(-1, std::memory_order_relaxed);
  recorder_->event(ProbeKind::kLockRelease, name_);
  mutex_.unlock();
}

}  // namespace lathe
