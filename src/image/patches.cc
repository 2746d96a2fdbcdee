#include "image/patches.h"

#include <algorithm>
#include <cstring>

#include "image/resize.h"

namespace lathe {

namespace {

ResizeRule rule(const PixelConfig& c) { return {c.factor(), c.temporal_patch, c.min_tokens, c.max_tokens}; }

// In floats and in this order, as the reference: rescaling is folded into mean and deviation.
std::array<std::array<float, 256>, 3> byte_values(const PixelConfig& c) {
  std::array<std::array<float, 256>, 3> value{};
  const auto factor = static_cast<float>(c.rescale_factor);
  for (int channel = 0; channel < 3; ++channel) {
    auto mean = static_cast<float>(c.mean[channel]), deviation = static_cast<float>(c.std[channel]);
    if (c.rescale) {
      mean *= static_cast<float>(1 / c.rescale_factor);
      deviation *= static_cast<float>(1 / c.rescale_factor);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto x = static_cast<float>(byte);
      value[channel][byte] = c.normalise ? (x - mean) / deviation : c.rescale ? x * factor : x;
    }
  }
  return value;
}

Patches blank(const PixelConfig& c, int slices, Size target) {
  Patches p{.grid = {slices, target.height / c.patch, target.width / c.patch},
            .width = c.patch_width(),
            .value = byte_values(c)};
  p.pixels.resize(p.grid.patches() * p.width);  // zeroes: the padding
  return p;
}

// Number of a patch within its slice.
int64_t patch_number(int row, int col, int columns, int merge) {
  const int64_t block = int64_t{row / merge} * (columns / merge) + col / merge;
  return block * merge * merge + row % merge * merge + col % merge;
}

// Writes a picture, at the top left of the target, into one temporal place of a slice.
void cut(const Picture& picture, const PixelConfig& c, int64_t slice, int place, Patches& patches) {
  const int side = c.patch;
  uint8_t* slice_pixels = patches.pixels.data() + slice * patches.grid.h * patches.grid.w * patches.width;
  for (int y = 0; y < picture.height; ++y)
    for (int col = 0; col * side < picture.width; ++col) {
      const int64_t patch = patch_number(y / side, col, patches.grid.w, c.merge);
      uint8_t* out = slice_pixels + patch * patches.width + (place * side + y % side) * side;
      const uint8_t* in = picture.row(y) + col * side * 3;
      const int count = std::min(side, picture.width - col * side);
      for (int channel = 0; channel < 3; ++channel, out += c.temporal_patch * side * side)
        for (int x = 0; x < count; ++x) out[x] = in[x * 3 + channel];
    }
}

// The picture at its content size; `resized` holds it if that isn't the picture itself.
const Picture& at_size(const Picture& picture, Size content, Picture& resized) {
  if (Size{picture.height, picture.width} == content) return picture;
  return resized = resize(picture, content);
}

}  // namespace

void Patches::write_values(int64_t first, int64_t count, float* out) const {
  const int64_t of_channel = width / 3;
  const uint8_t* in = pixels.data() + first * width;
  for (int64_t i = 0; i < count; ++i)
    for (int channel = 0; channel < 3; ++channel)
      for (int64_t j = 0; j < of_channel; ++j) *out++ = value[channel][*in++];
}

Result<Patches> preprocess_image(const Picture& picture, const PixelConfig& config) {
  const Size size{picture.height, picture.width};
  LATHE_ASSIGN(const ResizePlan plan, smart_resize(config.temporal_patch, size, rule(config)));
  Patches patches = blank(config, 1, plan.target);
  Picture resized;
  const Picture& content = at_size(picture, plan.content, resized);
  for (int place = 0; place < config.temporal_patch; ++place) cut(content, config, 0, place, patches);
  return patches;
}

Result<ClipPatches> ClipPatches::create(int64_t frames, Size frame, const PixelConfig& config) {
  if (frames < 1) return invalid("a clip without frames");
  ClipPatches clip;
  LATHE_ASSIGN(clip.plan_, smart_resize(frames, frame, rule(config)));
  clip.config_ = config;
  clip.frame_ = frame;
  clip.frames_ = frames;
  const int64_t slices = (frames + config.temporal_patch - 1) / config.temporal_patch;
  clip.patches_ = blank(config, static_cast<int>(slices), clip.plan_.target);
  return clip;
}

Status ClipPatches::add(const Picture& frame) {
  if (Size{frame.height, frame.width} != frame_)
    return invalid("a frame of {} x {} pixels in a clip of {} x {}", frame.width, frame.height, frame_.width,
                   frame_.height);
  LATHE_CHECK(added_ < frames_);
  Picture resized;
  const Picture& content = at_size(frame, plan_.content, resized);
  const int64_t end = added_ + 1 == frames_ ? int64_t{patches_.grid.t} * config_.temporal_patch : added_ + 1;
  for (; added_ < end; ++added_)
    cut(content, config_, added_ / config_.temporal_patch, static_cast<int>(added_ % config_.temporal_patch), patches_);
  return Status::ok();
}

Patches ClipPatches::finish() && {
  LATHE_CHECK(added_ >= frames_);
  return std::move(patches_);
}

Result<Patches> preprocess_video(std::span<const Picture> frames, const PixelConfig& config) {
  if (frames.empty()) return invalid("a clip without frames");
  LATHE_ASSIGN(ClipPatches clip,
               ClipPatches::create(static_cast<int64_t>(frames.size()), {frames[0].height, frames[0].width}, config));
  for (const Picture& frame : frames) LATHE_RETURN_IF_ERROR(clip.add(frame));
  return std::move(clip).finish();
}

PatchLayout lay_out(std::span<const Grid> grids, int merge) {
  PatchLayout layout{.segment_start = {0}};
  for (const Grid& grid : grids)
    for (int slice = 0; slice < grid.t; ++slice) {
      for (int y = 0; y < grid.h; y += merge)
        for (int x = 0; x < grid.w; x += merge)
          for (int member = 0; member < merge * merge; ++member) {
            layout.row.push_back(y + member / merge);
            layout.col.push_back(x + member % merge);
          }
      layout.segment_start.push_back(static_cast<int32_t>(layout.row.size()));
    }
  return layout;
}

}  // namespace lathe
