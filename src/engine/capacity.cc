#include "engine/capacity.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace lathe {

namespace {

constexpr int kMostCheckpoints = 512;

int64_t pages_of(int64_t tokens, const MemoryShape& shape) {
  return (tokens + shape.page_tokens - 1) / shape.page_tokens;
}

}  // namespace

Result<Capacity> plan_capacity(const ServiceOptions& o, const MemoryShape& shape, int max_context, int64_t free_bytes) {
  Capacity c;
  // In `strict` each verification of drafts holds a second sequence for a while.
  const bool twins = o.strict && shape.max_draft > 0;
  c.slots = o.max_running * (twins ? 2 : 1);
  const int64_t slots_bytes = c.slots * SequenceMemory::slot_bytes(shape);
  // A context, the rows drafted beyond it, and the page that forks share until one writes it.
  const int64_t least = pages_of(max_context + shape.max_draft + 1, shape) + 2;
  const int64_t most = o.max_running * least;
  int64_t pages = o.cache_tokens > 0 ? pages_of(o.cache_tokens, shape) + o.max_running
                                     : (free_bytes - slots_bytes) / 2 / SequenceMemory::page_bytes(shape);
  if (o.cache_tokens == 0) {
    if (pages < pages_of(shape.page_tokens, shape) + 2)
      return exhausted("{} sequences take {} MB, and only {} MB of memory are free: lower max_running", o.max_running,
                       slots_bytes >> 20, free_bytes >> 20);
    pages = std::min(pages, most);
  }
  c.pages = static_cast<int>(std::min<int64_t>(pages, 1 << 24));
  if (o.checkpoints > 0)
    c.checkpoints = o.checkpoints;
  else
    c.checkpoints = static_cast<int>(
        std::clamp<int64_t>(free_bytes / 10 / std::max<int64_t>(1, SequenceMemory::checkpoint_bytes(shape)),
                            std::min(8, 2 * o.max_running), kMostCheckpoints));
  return c;
}

int64_t allocatable_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t value; file >> key >> value; std::getline(file, unit))
    if (key == "MemAvailable:") return value << 10;
  return 0;
}

}  // namespace lathe
