#pragma once

#include <string>

#include "feedback/number_row.h"

namespace lathe {

// One row for people, such as
//   kda_decode/rows32_h8  avx512  65.0 us (±0.6)  24.3 GB/s  0.90 of roof  error 1.2e-06 (0.12 of tolerance)
std::string number_line(const NumberRow& row);

// 1.5e9 -> "1.50 G".
std::string with_prefix(double value);

}  // namespace lathe
