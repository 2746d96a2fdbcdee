#include "image/picture.h"

#include <cstdio>
#include <cstring>
#include <memory>

#include "base/mapped_file.h"
#include "image/formats.h"
#include "image/orientation.h"

namespace lathe {

namespace {

bool begins_with(std::span<const uint8_t> bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

struct Format {
  const char* name;
  Result<StoredPicture> (*decode)(std::span<const uint8_t>, const PictureLimits&);
};

Result<Format> recognise(std::span<const uint8_t> bytes) {
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return Format{"PNG", decode_png};
  if (begins_with(bytes, "\xff\xd8\xff")) return Format{"JPEG", decode_jpeg};
  if (begins_with(bytes, "RIFF") && begins_with(bytes, "WEBP", 8)) return Format{"WebP", decode_webp};
  if (bytes.empty()) return corrupt("the image is empty");
  return corrupt("not a PNG, JPEG or WebP image");
}

}  // namespace

Status check_size(int64_t width, int64_t height, const PictureLimits& limits) {
  if (width < 1 || height < 1) return corrupt("the header says {} x {} pixels", width, height);
  if (width > limits.side || height > limits.side)
    return invalid("{} x {} pixels; a side may have {}", width, height, limits.side);
  if (width * height > limits.pixels)
    return invalid("{} x {} are {} pixels; an image may have {}", width, height, width * height, limits.pixels);
  return Status::ok();
}

Result<Picture> decode_picture(std::span<const uint8_t> bytes, std::string_view name, const PictureLimits& limits) {
  if (static_cast<int64_t>(bytes.size()) > limits.encoded_bytes)
    return invalid("{}: {} bytes; an encoded image may have {}", name, bytes.size(), limits.encoded_bytes);
  const Result<Format> format = recognise(bytes);
  if (!format.is_ok()) return format.status().within(name);
  Result<StoredPicture> stored = format->decode(bytes, limits);
  if (!stored.is_ok()) return stored.status().within(fmt::format("{}: {}", name, format->name));
  return upright(std::move(stored->picture), stored->orientation);
}

Result<Picture> read_picture(const std::string& path, const PictureLimits& limits) {
  LATHE_ASSIGN(const MappedFile file, MappedFile::open(path));
  return decode_picture({file.data(), static_cast<size_t>(file.bytes())}, path, limits);
}

}  // namespace lathe
