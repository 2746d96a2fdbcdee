#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// Where a growing text meets one of a few strings first. Which one doesn't depend on how the text was split: the match
// that ends first wins, of those the one that begins first.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);
  bool empty() const { return strings_.empty(); }

  struct Match {
    size_t begin, end;
    int which;
  };
  // The first match in `text` that ends behind `old` (what was looked through before).
  std::optional<Match> find(std::string_view text, size_t old) const;
  // Bytes at the end of `text` that may yet become a match.
  size_t held_back(std::string_view text) const;
  const std::string& operator[](int i) const { return strings_[i]; }

 private:
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

}  // namespace lathe
