#pragma once

#include <string>
#include <vector>

#include "image/frame_choice.h"
#include "image/patches.h"

namespace lathe {

// A video ready for the model.
struct Clip {
  Patches patches;
  std::vector<double> timestamps;  // [patches.grid.t], seconds: of the first frame of each slice
};

// A video as a folder of frames: its PNG, JPEG and WebP files in the order of their names (byte order, so number them
// with leading zeroes); other files and hidden ones are passed over. `fps` is the source's, by which frames
// are chosen as the processor's rule says; 0: unknown, then the frames count as chosen already: all are taken, and
// times are told as if there were kUnknownFps a second. All must have one size, and only the chosen ones are decoded.
Result<Clip> read_clip(const std::string& folder, double fps, const VideoConfig& config,
                       const PictureLimits& limits = {});

// The time of the first frame of each slice, for chosen frames of a source.
std::vector<double> slice_times(const std::vector<int64_t>& chosen, double fps, int temporal_patch);

}  // namespace lathe
