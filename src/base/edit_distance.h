#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// The candidate that differs from `wanted` by the fewest edits, for "nearest is ..." in messages; "" if there is none.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& candidates);

}  // namespace lathe
