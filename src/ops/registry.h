#pragma once

#include <span>

#include "ops/workload.h"

namespace lathe {

// Every operator with its variants and cases: a table, built from each folder's list.
std::span<const AnyOp> all_ops();

// "OP=NAME" or "*=NAME" names an operator and a variant that exist.
Status check_choice(std::string_view text);

}  // namespace lathe
