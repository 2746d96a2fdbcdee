#pragma once

#include <cstdint>

namespace lathe {

// Anonymous pages that cost nothing until touched; nullptr when the address space is full. Zeroed.
void* reserve_pages(int64_t bytes);
void release_pages(void* address, int64_t bytes);

}  // namespace lathe
