#pragma once

#include "image/picture.h"

// One decoder a format, called by decode_picture with bytes that begin like that format. They name neither the file nor
// the format in their errors.

namespace lathe {

// Refuses what the header promises if it is over a limit.
Status check_size(int64_t width, int64_t height, const PictureLimits& limits);

// A decoded picture and its EXIF orientation, 1 to 8; 1: as stored.
struct StoredPicture {
  Picture picture;
  int orientation = 1;
};

Result<StoredPicture> decode_png(std::span<const uint8_t> bytes, const PictureLimits& limits);
Result<StoredPicture> decode_jpeg(std::span<const uint8_t> bytes, const PictureLimits& limits);
Result<StoredPicture> decode_webp(std::span<const uint8_t> bytes, const PictureLimits& limits);

}  // namespace lathe
