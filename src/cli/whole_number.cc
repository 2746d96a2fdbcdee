#include "cli/whole_number.h"

#include <fmt/format.h>

#include <charconv>

namespace lathe {

CLI::Validator whole_number(uint64_t low, uint64_t high) {
  auto complaint = [=](const std::string& text) -> std::string {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!text.empty() && error == std::errc() && end == text.data() + text.size() && value >= low && value <= high)
      return "";
    return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
  };
  return CLI::Validator(complaint, fmt::format("INT {}..{}", low, high), "whole_number");
}

}  // namespace lathe
