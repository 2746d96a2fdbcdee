#include "image/formats.h"

// Built in place of decode_webp.cc where libwebp is absent.
namespace lathe {

Result<StoredPicture> decode_webp(std::span<const uint8_t>, const PictureLimits&) {
  return unavailable("this build has no libwebp: install libwebp-dev and build again, or convert the image to PNG");
}

}  // namespace lathe
