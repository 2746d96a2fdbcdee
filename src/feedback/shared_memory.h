#pragma once

#include <memory>

#include "base/device.h"

namespace lathe {

// Memory that two processes see: made by the supervisor, opened by the candidate from a file descriptor. Pages are
// touched as they are used.
class SharedMemory {
 public:
  static Result<SharedMemory> create(int64_t bytes);
  static Result<SharedMemory> open(int fd);  // keeps fd open
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }

 private:
  SharedMemory() = default;
  int fd_ = -1;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A cpu device whose one allocation is `memory`. Uploads are ignored: somebody else writes what lies there.
std::unique_ptr<Device> make_shared_device(const SharedMemory& memory);

}  // namespace lathe
