#pragma once

#include <cstdint>

namespace lathe {

// Rows of a task, where there are many.
constexpr int kHcBlockRows = 16;
// Of S = 4: a block's piece of X' is 32 KB, six rows' piece of fn 12 KB: they fit L1 together.
constexpr int64_t kHcPieceChannels = 128;

}  // namespace lathe
