#include <cstring>

#include "base/device.h"
#include "base/host_memory.h"

namespace lathe {

namespace {

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "cpu"; }
  Result<void*> allocate(int64_t bytes) override {
    void* p = reserve_pages(bytes);
    if (!p) return exhausted("cpu: no address space for {} bytes", bytes);
    return p;
  }
  void release(void* address, int64_t bytes) override { release_pages(address, bytes); }
  bool shares_host_memory() const override { return true; }
  void to_device(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  Status to_host(void* to, const void* from, int64_t bytes) override {
    copy(to, from, bytes);
    return synchronize();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void zero(void* to, int64_t bytes) override {
    if (bytes) std::memset(to, 0, bytes);
  }
  void enqueue(std::function<Status()> work) override {
    if (Status s = work(); !s.is_ok() && error_.is_ok()) error_ = s;
  }
  Status synchronize() override { return std::exchange(error_, Status::ok()); }

 private:
  Status error_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace lathe
