#include "engine/output_monitor.h"

#include <algorithm>

namespace lathe {

namespace {
constexpr int kLongest = 64, kLeast = 128, kTimes = 4;
constexpr size_t kEvery = 32;  // tokens between two looks
constexpr size_t kLeastGarbled = 64;
constexpr int kGarbledShare = 8;
}  // namespace

bool runs_in_circle(std::span<const int32_t> tokens, int longest, int least) {
  const int n = static_cast<int>(tokens.size());
  for (int period = 1; period <= longest; ++period) {
    const int length = std::max(least, kTimes * period);
    if (length > n) return false;
    int same = 0;
    while (same < length - period && tokens[n - 1 - same] == tokens[n - 1 - same - period]) ++same;
    if (same == length - period) return true;
  }
  return false;
}

OutputMonitor::Finding OutputMonitor::look(std::span<const int32_t> output, int replacements) {
  if (output.size() < looked_at_ + kEvery) return Finding::kNone;
  looked_at_ = output.size();
  if (!garbled_ && output.size() >= kLeastGarbled && replacements * kGarbledShare >= static_cast<int>(output.size())) {
    garbled_ = true;
    return Finding::kGarbled;
  }
  if (loop_ || !runs_in_circle(output, kLongest, kLeast)) return Finding::kNone;
  loop_ = true;
  return Finding::kLoop;
}

}  // namespace lathe
