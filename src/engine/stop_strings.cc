#include "engine/stop_strings.h"

#include <algorithm>

namespace lathe {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, "");
  for (const std::string& s : strings_) longest_ = std::max(longest_, s.size());
}

std::optional<StopStrings::Match> StopStrings::find(std::string_view text, size_t old) const {
  std::optional<Match> first;
  for (int i = 0; i < static_cast<int>(strings_.size()); ++i) {
    const std::string& s = strings_[i];
    const size_t from = old + 1 > s.size() ? old + 1 - s.size() : 0;
    const size_t at = text.find(s, from);
    if (at == std::string_view::npos) continue;
    const Match m{at, at + s.size(), i};
    if (!first || m.end < first->end || (m.end == first->end && m.begin < first->begin)) first = m;
  }
  return first;
}

size_t StopStrings::held_back(std::string_view text) const {
  if (strings_.empty()) return 0;
  for (size_t length = std::min(text.size(), longest_ - 1); length > 0; --length) {
    const std::string_view tail = text.substr(text.size() - length);
    for (const std::string& s : strings_)
      if (s.size() > length && s.starts_with(tail)) return length;
  }
  return 0;
}

}  // namespace lathe
