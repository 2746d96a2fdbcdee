#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "image/picture.h"
#include "image/processor_config.h"
#include "image/smart_resize.h"

namespace lathe {

// Patches of one image or clip: t slices of h x w patches. h and w are multiples of the merge size.
struct Grid {
  int t = 0, h = 0, w = 0;

  int64_t patches() const { return int64_t{t} * h * w; }
  int64_t tokens(int merge) const { return patches() / (int64_t{merge} * merge); }
  int64_t tokens_of_slice(int merge) const { return int64_t{h} * w / (int64_t{merge} * merge); }
  bool operator==(const Grid&) const = default;
};

// The vision tower's input for one image or clip: resized and padded pixels, cut into patches. Slices one after
// another; in a slice merge blocks row-major, in a block patches row-major; in a patch (channel, temporal, y, x). Kept
// as bytes: a long clip's floats would take four times as much, and are needed a few segments at a time.
struct Patches {
  Grid grid;
  int width = 0;                                  // values of a patch
  std::vector<uint8_t> pixels;                    // [grid.patches(), width]
  std::array<std::array<float, 256>, 3> value{};  // what a byte of each channel means after rescaling and normalising

  // Values of patches [first, first + count), [count, width].
  void write_values(int64_t first, int64_t count, float* out) const;
};

// An image, by the processor's image settings. Every temporal copy is the same picture.
Result<Patches> preprocess_image(const Picture& picture, const PixelConfig& config);

// Cuts the frames of a clip one by one, so that no more than one frame is in memory as a picture.
class ClipPatches {
 public:
  // `frames` frames of one size will follow, in order. If that isn't a whole number of slices, the last is repeated.
  static Result<ClipPatches> create(int64_t frames, Size frame, const PixelConfig& config);
  Status add(const Picture& frame);
  Patches finish() &&;

 private:
  ClipPatches() = default;
  PixelConfig config_;
  Size frame_;
  ResizePlan plan_;
  int64_t frames_ = 0, added_ = 0;
  Patches patches_;
};

// Frames already chosen, all of one size.
Result<Patches> preprocess_video(std::span<const Picture> frames, const PixelConfig& config);

// Where patches stand, as the vision tower's operators want it: grids one after another.
struct PatchLayout {
  std::vector<int32_t> row, col;       // [patches], in the frame
  std::vector<int32_t> segment_start;  // [segments + 1]: every slice is a segment of its own
};
PatchLayout lay_out(std::span<const Grid> grids, int merge);

}  // namespace lathe
