#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/stream.h"

namespace lathe {

enum class DeviceKind { kCpu, kSim, kCuda };

// Memory and an in-order queue. Work that operators enqueue, and the copies below, run in the order of the calls;
// the host may be ahead until synchronize().
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;

  // Uninitialised memory, aligned to 64 bytes. Pages are touched lazily where the device can do that.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual void release(void* address, int64_t bytes) = 0;

  // True if the host may read and write device addresses: then uploads of mapped files cost nothing.
  virtual bool shares_host_memory() const = 0;

  // `from` may be reused when the call returns.
  virtual void to_device(void* to, const void* from, int64_t bytes) = 0;
  // Waits for the queue; then `to` holds the bytes.
  virtual Status to_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* to, int64_t bytes) = 0;

  // Runs `work` in queue order. On `cpu` at once.
  virtual void enqueue(std::function<Status()> work) = 0;
  // Waits; tells the first error of the work since the last call.
  virtual Status synchronize() = 0;

  // What a CUDA operator's kernels are launched into; null on other devices.
  virtual Stream stream() const { return {}; }
  // Microseconds of the queue's own clock between the first and the last of what `work` enqueues, once. Where the device
  // can record work and replay it, the replay is timed: the host's share isn't in it.
  virtual Result<double> time_us(const std::function<Status()>& work);
  // Of a card's own memory, what allocations could have; 0 where memory is the host's.
  virtual int64_t free_bytes() const { return 0; }
};

// Host memory, work at once.
std::unique_ptr<Device> make_cpu_device();
// A second address space on the host: a device pointer faults when the host uses it, work runs on a queue thread,
// later. Proves ownership, order and missing copies where there is no accelerator.
std::unique_ptr<Device> make_sim_device();
// The first card that this process sees. An error where the build has no CUDA, or the machine no card it can use.
Result<std::unique_ptr<Device>> make_cuda_device();
Result<std::unique_ptr<Device>> make_device(const std::string& name);
// What make_device knows in this build.
std::vector<std::string> device_names();

// What a sim device's queue adds to a host address; an address with this bit isn't canonical, so any use faults.
constexpr uint64_t kSimPoison = uint64_t{1} << 62;
template <class T>
T* sim_to_host(T* p) {
  return reinterpret_cast<T*>(reinterpret_cast<uint64_t>(p) & ~kSimPoison);
}

// Device memory that is freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(Device& device, int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_) device_->release(data_, bytes_);
  }

  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lathe
