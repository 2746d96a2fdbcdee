#pragma once

#include <span>

#include "ops/workload.h"

namespace lathe {

// Every operator with its variants and cases: a table, built from each folder's list.
std::span<const AnyOp> all_ops();

// "OP=NAME" or "*=NAME" names an operator and a variant that exist.
Status check_choice(std::string_view text);
// Adds choices that somebody wrote: each is checked first, so that a misspelt one can't be passed over.
Status add_choices(const std::vector<std::string>& texts, Choices& choices);

}  // namespace lathe
