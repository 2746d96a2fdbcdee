#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Lower-case hex, 64 digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace lathe
