#pragma once

#include "cache/sequence_memory.h"
#include "engine/service.h"

namespace lathe {

// How many sequences, pages and checkpoints a service gets: as its options say, else from the machine's memory.
struct Capacity {
  int slots = 0, pages = 0, checkpoints = 0;
};

// free_bytes: what may be used, weights already subtracted. Half of it goes to pages, a tenth to checkpoints; more
// pages than `max_running` whole contexts aren't taken. An error says what doesn't fit.
Result<Capacity> plan_capacity(const ServiceOptions& options, const MemoryShape& shape, int max_context,
                               int64_t free_bytes);

// Memory that new allocations could have, by /proc/meminfo; 0 where that can't be read.
int64_t allocatable_bytes();

}  // namespace lathe
