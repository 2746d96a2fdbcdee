#pragma once

#include <array>
#include <string>

#include "base/status.h"

namespace lathe {

// How pixels become patches. The defaults are what the reference's processors assume for a missing field.
struct PixelConfig {
  int patch = 14, temporal_patch = 2, merge = 2, expand_factor = 1;
  int min_tokens = 16, max_tokens = 8000;  // after merging; of the whole clip, for video
  bool rescale = true, normalise = true;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> std = {0.26862954, 0.26130258, 0.27577711};

  int factor() const { return patch * merge * expand_factor; }            // sides are multiples of this
  int patch_width() const { return 3 * temporal_patch * patch * patch; }  // values of a patch
};

struct VideoConfig {
  PixelConfig pixels;
  double fps = 2;  // frames taken a second
  int max_frames = 2048;
  double max_duration = 0;  // seconds; 0: no cap
};

// processor_config.json of a model folder: sections image_processor and video_processor. A folder with only the older
// preprocessor_config.json has the image fields at that file's top level. A field that asks for something we don't do
// (another resampling filter, no resizing) is an error that names it; names of classes are not looked at.
struct ProcessorConfig {
  PixelConfig image;
  VideoConfig video;

  ProcessorConfig() { video.pixels.max_tokens = 240000; }
  static Result<ProcessorConfig> read(const std::string& model_dir);
  static Result<ProcessorConfig> parse(const std::string& text, const std::string& file);
};

}  // namespace lathe
