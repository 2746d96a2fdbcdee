#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/picture.h"

// Files of every format for tests, written by the formats' own libraries.
namespace lathe::testing {

using Bytes = std::vector<uint8_t>;

// A picture with gradients, an edge and noise, the same for the same arguments.
Picture test_picture(int width, int height, int seed = 1);

// rows: height · (width · channels · depth / 8) bytes, big-endian where depth is 16. type is a PNG_COLOR_TYPE.
struct PngOptions {
  int type = 2, depth = 8;
  bool interlaced = false;
  Bytes palette;                   // r, g, b, ...
  Bytes exif;                      // a TIFF block
  bool transparent_first = false;  // palette entry 0 has alpha 0
};
Bytes png(int width, int height, const Bytes& rows, const PngOptions& options = {});
Bytes png(const Picture& picture);

struct JpegOptions {
  int components = 3;  // 1 grey, 3 RGB, 4 CMYK as given
  int quality = 95;
  bool progressive = false;
  Bytes exif;  // a TIFF block
};
Bytes jpeg(int width, int height, const Bytes& rows, const JpegOptions& options = {});

Bytes webp(const Picture& picture, bool lossless = true);
Bytes webp_rgba(int width, int height, const Bytes& rgba);
// An extended file around a simple one, with an EXIF chunk.
Bytes webp_with_exif(const Bytes& simple, int width, int height, const Bytes& tiff);

// A TIFF block with nothing but an orientation.
Bytes tiff_orientation(int orientation, bool little_endian);

}  // namespace lathe::testing
