#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lathe {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would wait for a writer
  if (fd < 0) return not_found("{}: {}", path, std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return invalid("{}: not a regular file", path);
  }
  MappedFile file;
  file.path_ = path;
  file.bytes_ = info.st_size;
  if (info.st_size > 0) {
    void* p = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      return invalid("{}: cannot be mapped: {}", path, std::strerror(error));
    }
    file.data_ = static_cast<const uint8_t*>(p);
  }
  ::close(fd);
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), bytes_);
}

void forget_mapped(const void* data, int64_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(data), begin = first / page * page;
  if (bytes > 0) madvise(reinterpret_cast<void*>(begin), first + static_cast<uintptr_t>(bytes) - begin, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::string& path, int64_t limit_bytes) {
  LATHE_ASSIGN(MappedFile file, MappedFile::open(path));
  if (file.bytes() > limit_bytes) return invalid("{}: {} bytes; at most {} are read", path, file.bytes(), limit_bytes);
  return std::string(reinterpret_cast<const char*>(file.data()), file.bytes());
}

}  // namespace lathe
