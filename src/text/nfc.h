#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Unicode's composed form of valid UTF-8. Text that can't change (most of it) is only looked at.
std::string nfc(std::string_view text);
bool is_surely_nfc(std::string_view text);

}  // namespace lathe
