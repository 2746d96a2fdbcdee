#include "image/orientation.h"

#include <algorithm>
#include <cstring>

namespace lathe {

namespace {

constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
constexpr size_t kEntryBytes = 12;

// Reads numbers in the byte order that the header declares; beyond the end: 0.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool little;

  uint32_t number(size_t at, int size) const {
    uint32_t value = 0;
    if (at > bytes.size() || bytes.size() - at < static_cast<size_t>(size)) return 0;
    for (int i = 0; i < size; ++i) value |= uint32_t{bytes[at + i]} << 8 * (little ? i : size - 1 - i);
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const uint8_t> bytes) {
  if (bytes.size() >= 6 && std::memcmp(bytes.data(), "Exif\0\0", 6) == 0) bytes = bytes.subspan(6);
  if (bytes.size() < 8) return 1;
  const Tiff tiff{bytes, bytes[0] == 'I'};
  if (std::memcmp(bytes.data(), tiff.little ? "II*\0" : "MM\0*", 4) != 0) return 1;
  const size_t directory = tiff.number(4, 4);
  const uint32_t entries = tiff.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > bytes.size()) return 1;
    if (tiff.number(entry, 2) != kOrientationTag || tiff.number(entry + 2, 2) != kShort) continue;
    const uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture upright(Picture stored, int orientation) {
  if (orientation <= 1 || orientation > 8) return stored;
  const bool transposed = orientation >= 5;  // rows of the result are columns as stored
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Picture out{.width = stored.width, .height = stored.height, .rgb = std::vector<uint8_t>(stored.rgb.size())};
  if (transposed) std::swap(out.width, out.height);
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      const int along = transposed ? y : x, down = transposed ? x : y;
      const int from_x = from_right ? stored.width - 1 - along : along;
      const int from_y = from_bottom ? stored.height - 1 - down : down;
      std::memcpy(out.row(y) + x * 3, stored.row(from_y) + from_x * 3, 3);
    }
  return out;
}

}  // namespace lathe
