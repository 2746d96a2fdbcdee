#pragma once

#include <span>

#include "ops/workload.h"

namespace lathe {

// Every operator with its variants and cases: a table, built from each folder's list.
std::span<const AnyOp> all_ops();

}  // namespace lathe
