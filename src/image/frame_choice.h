#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "image/processor_config.h"

namespace lathe {

// Frames a second of a source that doesn't say.
constexpr double kUnknownFps = 24;

// What is known about a source of frames.
struct FrameSource {
  int64_t frames = 0;
  double fps = kUnknownFps;
  std::optional<double> duration;  // seconds; from the frame count where absent
};

// Indices of the frames to take, ascending (model.md 11.3): config.fps a second, an even number of them, the last one
// repeated for that. Empty if the clip is too short for a single frame at that rate.
std::vector<int64_t> choose_frames(const FrameSource& source, const VideoConfig& config);

}  // namespace lathe
