#pragma once

#include <cstdint>

// How the rows that must choose are cut up; what scratch they take follows from it.

namespace lathe {

// Rows of one sequence that share a reading of its pools.
constexpr int kIndexBlockRows = 8;
// Scores kept at a time, unless one block needs more.
constexpr int64_t kIndexWaveFloats = 4 << 20;

}  // namespace lathe
