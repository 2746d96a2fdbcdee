#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lathe {

// A decoded picture: 8-bit RGB, rows from the top, no gaps.
struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  const uint8_t* row(int y) const { return rgb.data() + int64_t{y} * width * 3; }
  uint8_t* row(int y) { return rgb.data() + int64_t{y} * width * 3; }
};

// What a picture from outside may cost. Sizes are read from its headers, before anything of that size is allocated.
struct PictureLimits {
  int64_t encoded_bytes = int64_t{20} << 20;
  int64_t pixels = 64'000'000;  // 192 MB of RGB
  int side = 16384;
};

// Decodes PNG, JPEG or WebP, told apart by their first bytes. `name` stands in messages: a file's path, or "image 2".
//
// Colours as the reference gets them from PIL's exif_transpose and convert("RGB"): alpha is dropped, not composited;
// palettes and grey are widened; CMYK is taken as Adobe's inverted CMYK; colour profiles and gamma are ignored; an EXIF
// orientation is applied, so that width and height may change places. One difference: of 16-bit grey we take the high
// byte, PIL 9 clips the value at 255.
//
// Broken input is an error and never a partial picture: truncated data, bad checksums, wrong codes.
Result<Picture> decode_picture(std::span<const uint8_t> bytes, std::string_view name, const PictureLimits& limits = {});

// The same from a file.
Result<Picture> read_picture(const std::string& path, const PictureLimits& limits = {});

}  // namespace lathe
