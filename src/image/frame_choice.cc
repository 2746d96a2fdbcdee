#include "image/frame_choice.h"

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

// `count` points from first to last, truncated.
std::vector<int64_t> spread(int64_t first, int64_t last, int64_t count) {
  std::vector<int64_t> points;
  const double step = count > 1 ? static_cast<double>(last - first) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)
    points.push_back(
        i && i == count - 1 ? last : static_cast<int64_t>(static_cast<double>(i) * step + static_cast<double>(first)));
  return points;
}

// The first frame at or after each tick of 1 / target seconds, until a tick is past the end.
std::vector<int64_t> walk(const FrameSource& source, double target, double seconds) {
  std::vector<int64_t> taken;
  // The reference multiplies by the frame's length; i / fps differs in the last bit, and so in frames that meet a tick.
  const double frame = 1 / source.fps;
  double tick = 0;
  for (int64_t i = 0; i < source.frames; ++i) {
    if (static_cast<double>(i) * frame < tick) continue;
    taken.push_back(i);
    tick += 1 / target;
    if (tick >= seconds) break;
  }
  return taken;
}

}  // namespace

std::vector<int64_t> choose_frames(const FrameSource& source, const VideoConfig& config) {
  const int64_t last = source.frames - 1;
  if (last < 0) return {};
  double duration = source.duration.value_or(std::nearbyint(static_cast<double>(last) / source.fps) + 1);
  const double seconds = std::floor(duration);
  if (config.max_duration > 0) duration = std::min(duration, config.max_duration);
  const auto wanted = static_cast<int64_t>(std::min(duration * config.fps, static_cast<double>(config.max_frames)));
  std::vector<int64_t> taken;
  if (source.frames < wanted) {
    taken = spread(0, last, wanted);
  } else {
    taken = walk(source, config.fps, seconds);
    const auto count = static_cast<int64_t>(taken.size());
    if (count < wanted) taken = taken.empty() ? spread(0, last, wanted) : spread(taken.front(), taken.back(), wanted);
    if (count > wanted) taken = spread(0, last, wanted);
  }
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  if (taken.size() % 2) taken.push_back(taken.back());
  return taken;
}

}  // namespace lathe
