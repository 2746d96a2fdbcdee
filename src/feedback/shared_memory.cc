#include "feedback/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lathe {

namespace {

Result<char*> map(int fd, int64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) return exhausted("can't map {} bytes of shared memory: {}", bytes, std::strerror(errno));
  return static_cast<char*>(data);
}

class SharedDevice final : public Device {
 public:
  explicit SharedDevice(const SharedMemory& memory) : memory_(memory), cpu_(make_cpu_device()) {}
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "cpu"; }
  Result<void*> allocate(int64_t bytes) override {
    if (bytes > memory_.bytes()) return exhausted("{} bytes are wanted of {} shared ones", bytes, memory_.bytes());
    return memory_.data();
  }
  void release(void*, int64_t) override {}
  bool shares_host_memory() const override { return true; }
  void to_device(void*, const void*, int64_t) override {}
  Status to_host(void* to, const void* from, int64_t bytes) override { return cpu_->to_host(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override { cpu_->copy(to, from, bytes); }
  void zero(void* to, int64_t bytes) override { cpu_->zero(to, bytes); }
  void enqueue(std::function<Status()> work) override { cpu_->enqueue(std::move(work)); }
  Status synchronize() override { return cpu_->synchronize(); }

 private:
  const SharedMemory& memory_;
  std::unique_ptr<Device> cpu_;
};

}  // namespace

Result<SharedMemory> SharedMemory::create(int64_t bytes) {
  SharedMemory memory;
  memory.fd_ = memfd_create("lathe operator case", MFD_CLOEXEC);
  if (memory.fd_ < 0 || ftruncate(memory.fd_, bytes) != 0)
    return exhausted("can't make {} bytes of shared memory: {}", bytes, std::strerror(errno));
  memory.bytes_ = bytes;
  LATHE_ASSIGN(memory.data_, map(memory.fd_, bytes));
  return memory;
}

Result<SharedMemory> SharedMemory::open(int fd) {
  struct stat s;
  if (fstat(fd, &s) != 0 || s.st_size <= 0)
    return invalid("file descriptor {} isn't shared memory: run by a supervisor?", fd);
  SharedMemory memory;
  memory.fd_ = fd;
  memory.bytes_ = s.st_size;
  LATHE_ASSIGN(memory.data_, map(fd, s.st_size));
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

std::unique_ptr<Device> make_shared_device(const SharedMemory& memory) {
  return std::make_unique<SharedDevice>(memory);
}

}  // namespace lathe
