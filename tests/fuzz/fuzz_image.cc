#include <cstdlib>
#include <vector>

#include "image/patches.h"

// Any bytes as an image: a picture within the limits, whose patches can be cut, or an error. Seeds: scripts/soak gives
// it the files of tests/fuzz/corpus/image, one of each format.

namespace {

// Small enough that an honest decoder is fast and a dishonest one shows in the memory limit.
constexpr lathe::PictureLimits kLimits{.encoded_bytes = 1 << 16, .pixels = 1 << 18, .side = 4096};

uint32_t crc32(const uint8_t* data, size_t size) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

// Gives a PNG's chunks right checksums: a fuzzer seldom guesses them, and would never get past the first.
void mend_checksums(std::vector<uint8_t>& png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t size = size_t{png[at]} << 24 | png[at + 1] << 16 | png[at + 2] << 8 | png[at + 3];
    if (size > png.size() - at - 12) return;
    const uint32_t crc = crc32(&png[at + 4], size + 4);
    for (int i = 0; i < 4; ++i) png[at + 8 + size + i] = static_cast<uint8_t>(crc >> 8 * (3 - i));
    at += 12 + size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  if (size > 8 && data[0] == 0x89) mend_checksums(bytes);
  const lathe::Result<lathe::Picture> picture = lathe::decode_picture(bytes, "fuzz", kLimits);
  if (!picture.is_ok()) {
    if (picture.status().message().empty()) std::abort();
    return 0;
  }
  if (picture->width < 1 || picture->height < 1 || int64_t{picture->width} * picture->height > kLimits.pixels)
    std::abort();
  if (picture->rgb.size() != size_t(picture->width) * picture->height * 3) std::abort();
  lathe::PixelConfig config;
  config.min_tokens = 1;
  config.max_tokens = 16;
  const lathe::Result<lathe::Patches> patches = lathe::preprocess_image(*picture, config);
  if (!patches.is_ok() || patches->grid.tokens(config.merge) > config.max_tokens) std::abort();
  return 0;
}
