#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "image/formats.h"
#include "image/orientation.h"

namespace lathe {

namespace {

uint32_t little32(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24; }

// RIFF: 12 bytes, then chunks of a name, a size and data, each at an even offset.
int orientation_of(std::span<const uint8_t> bytes) {
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t size = little32(&bytes[at + 4]), left = bytes.size() - at - 8;
    if (size > left) return 1;
    if (std::memcmp(&bytes[at], "EXIF", 4) == 0) return exif_orientation(bytes.subspan(at + 8, size));
    at += 8 + size + size % 2;
  }
  return 1;
}

const char* reason(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "uses a feature that libwebp doesn't know";
    default:
      return "the bit stream is damaged";
  }
}

}  // namespace

Result<StoredPicture> decode_webp(std::span<const uint8_t> bytes, const PictureLimits& limits) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return unavailable("libwebp has another version than its header");
  if (VP8StatusCode code = WebPGetFeatures(bytes.data(), bytes.size(), &config.input); code != VP8_STATUS_OK)
    return corrupt("{}", reason(code));
  if (config.input.has_animation) return invalid("animated; give its frames as a folder of images");
  LATHE_RETURN_IF_ERROR(check_size(config.input.width, config.input.height, limits));
  StoredPicture stored{.orientation = orientation_of(bytes)};
  Picture& p = stored.picture;
  p.width = config.input.width;
  p.height = config.input.height;
  p.rgb.resize(int64_t{p.width} * p.height * 3);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = p.rgb.data(), .stride = p.width * 3, .size = p.rgb.size()};
  if (VP8StatusCode code = WebPDecode(bytes.data(), bytes.size(), &config); code != VP8_STATUS_OK)
    return corrupt("{}", reason(code));
  return stored;
}

}  // namespace lathe
