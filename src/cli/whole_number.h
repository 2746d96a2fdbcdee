#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace lathe {

// Takes decimal digits within [low, high] and nothing else: no sign, no gap, nothing that would wrap around.
CLI::Validator whole_number(uint64_t low, uint64_t high = std::numeric_limits<int32_t>::max());

}  // namespace lathe
