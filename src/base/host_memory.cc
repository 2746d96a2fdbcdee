#include "base/host_memory.h"

#include <sys/mman.h>

namespace lathe {

namespace {
int64_t mapped_bytes(int64_t bytes) { return bytes > 0 ? bytes : 1; }
}  // namespace

void* reserve_pages(int64_t bytes) {
  void* p =
      mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (bytes >= (int64_t{4} << 20)) madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

void release_pages(void* address, int64_t bytes) { munmap(address, mapped_bytes(bytes)); }

}  // namespace lathe
