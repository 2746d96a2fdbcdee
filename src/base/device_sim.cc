#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/device.h"
#include "base/host_memory.h"

namespace lathe {

namespace {

template <class T>
T* poisoned(T* p) {
  return reinterpret_cast<T*>(reinterpret_cast<uint64_t>(p) | kSimPoison);
}

class SimDevice final : public Device {
 public:
  SimDevice() : thread_([this] { work_through(); }) {}
  ~SimDevice() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  DeviceKind kind() const override { return DeviceKind::kSim; }
  std::string name() const override { return "sim"; }

  Result<void*> allocate(int64_t bytes) override {
    char* p = static_cast<char*>(reserve_pages(bytes));
    if (!p) return exhausted("sim: no address space for {} bytes", bytes);
    // Fresh memory is NaN, so that a read before the first write shows. Large reservations stay lazy.
    if (bytes <= (int64_t{16} << 20)) std::memset(p, 0xff, bytes);
    return static_cast<void*>(poisoned(p));
  }
  // Queued work may still use the memory: it goes when the queue gets there.
  void release(void* address, int64_t bytes) override {
    enqueue([=] {
      release_pages(sim_to_host(address), bytes);
      return Status::ok();
    });
  }
  bool shares_host_memory() const override { return false; }

  void to_device(void* to, const void* from, int64_t bytes) override {
    const char* begin = static_cast<const char*>(from);
    enqueue([to, staged = std::vector<char>(begin, begin + bytes)] {
      if (!staged.empty()) std::memcpy(sim_to_host(to), staged.data(), staged.size());
      return Status::ok();
    });
  }
  Status to_host(void* to, const void* from, int64_t bytes) override {
    LATHE_RETURN_IF_ERROR(synchronize());
    if (bytes) std::memcpy(to, sim_to_host(from), bytes);
    return Status::ok();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    enqueue([=] {
      if (bytes) std::memmove(sim_to_host(to), sim_to_host(from), bytes);
      return Status::ok();
    });
  }
  void zero(void* to, int64_t bytes) override {
    enqueue([=] {
      if (bytes) std::memset(sim_to_host(to), 0, bytes);
      return Status::ok();
    });
  }

  void enqueue(std::function<Status()> work) override {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  Status synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
    return std::exchange(error_, Status::ok());
  }

 private:
  void work_through() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;  // stopped, and everything done
      std::function<Status()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      Status status = work();
      work = nullptr;
      lock.lock();
      busy_ = false;
      if (!status.is_ok() && error_.is_ok()) error_ = status;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> queue_;
  bool busy_ = false, stop_ = false;
  Status error_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Device> make_sim_device() { return std::make_unique<SimDevice>(); }

}  // namespace lathe
