#include "image/smart_resize.h"

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

int64_t align(double side, int64_t factor) {
  return static_cast<int64_t>(std::ceil(side / static_cast<double>(factor))) * factor;
}

// Halves go to the even neighbour, as Python rounds.
int64_t whole_slices(int64_t frames, int64_t temporal) {
  return std::max(
      temporal,
      static_cast<int64_t>(std::nearbyint(static_cast<double>(frames) / static_cast<double>(temporal))) * temporal);
}

// The largest aligned size of this aspect ratio within a budget of pixels, over content heights.
Size largest_within(Size picture, int64_t frames, int64_t budget, int64_t factor) {
  Size best{static_cast<int>(factor), static_cast<int>(factor)};
  for (int64_t low = 1, high = picture.height; low <= high;) {
    const int64_t height = (low + high) / 2;
    const int64_t width = std::max<int64_t>(1, picture.width * height / picture.height);
    const int64_t h = align(static_cast<double>(height), factor), w = align(static_cast<double>(width), factor);
    if (frames * h * w <= budget) {
      best = {static_cast<int>(h), static_cast<int>(w)};
      low = height + 1;
    } else {
      high = height - 1;
    }
  }
  return best;
}

}  // namespace

Result<ResizePlan> smart_resize(int64_t frames, Size picture, const ResizeRule& rule) {
  const int64_t factor = rule.factor, token = int64_t{rule.temporal} * factor * factor;
  const int64_t least = rule.min_tokens * token, most = rule.max_tokens * token;
  const int64_t whole = whole_slices(frames, rule.temporal), pixels = frames * picture.height * picture.width;
  if (most < whole * factor * factor)
    return invalid("{} frames need at least {} tokens; the processor allows {}", frames, whole / rule.temporal,
                   rule.max_tokens);
  int64_t h = align(picture.height, factor), w = align(picture.width, factor);
  if (whole * h * w < least) {
    const double scale = std::sqrt(static_cast<double>(least) / static_cast<double>(pixels));
    h = align(std::max(1.0, std::ceil(picture.height * scale)), factor);
    w = align(std::max(1.0, std::ceil(picture.width * scale)), factor);
  }
  Size target{static_cast<int>(h), static_cast<int>(w)};
  if (whole * h * w > most) target = largest_within(picture, whole, most, factor);
  double scale =
      std::min(static_cast<double>(target.height) / picture.height, static_cast<double>(target.width) / picture.width);
  if (pixels >= least) scale = std::min(1.0, scale);  // large enough already: never enlarged
  const auto side = [&](int from, int limit) {
    return static_cast<int>(std::clamp(std::floor(from * scale), 1.0, static_cast<double>(limit)));
  };
  return ResizePlan{target, {side(picture.height, target.height), side(picture.width, target.width)}};
}

}  // namespace lathe
