#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "image/formats.h"
#include "image/orientation.h"

namespace lathe {

namespace {

// No text, profile or palette of an honest picture comes near; a compressed chunk may not unpack to more.
constexpr png_alloc_size_t kChunkBytes = 1 << 20;

// What the callbacks share. Lives outside the frame that longjmp returns to.
struct Reading {
  std::span<const uint8_t> bytes;
  size_t at = 0;
  char message[160] = "";
  const PictureLimits* limits = nullptr;
  Status refused;  // by our own limits
  StoredPicture stored;
  std::vector<uint8_t*> rows;
};

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* r = static_cast<Reading*>(png_get_io_ptr(png));
  if (r->bytes.size() - r->at < count) png_error(png, "the file ends too early");
  std::memcpy(out, r->bytes.data() + r->at, count);
  r->at += count;
}

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* r = static_cast<Reading*>(png_get_error_ptr(png));
  std::strncpy(r->message, message, sizeof r->message - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}  // about chunks we don't use

void ask_for_rgb(png_structp png, png_infop info) {
  const int colour = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  if (depth == 16) png_set_strip_16(png);  // the high byte, as PIL does with colour
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (!(colour & PNG_COLOR_MASK_COLOR)) {
    if (depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

// False: see r.refused. Only plain values live here, since png_error jumps out of the middle; and a frame of its own,
// since setjmp's may keep nothing in registers.
[[gnu::noinline]] bool read_all(png_structp png, png_infop info, Reading* r) {
  png_set_read_fn(png, r, read_bytes);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size refuses with a better message
  png_set_chunk_malloc_max(png, kChunkBytes);
  png_set_chunk_cache_max(png, 64);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  static constexpr png_byte kSkipped[] = "iCCP\0tEXt\0zTXt\0iTXt\0sPLT";  // five names, each with its zero
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kSkipped, 5);
  png_read_info(png, info);
  r->refused = check_size(png_get_image_width(png, info), png_get_image_height(png, info), *r->limits);
  if (!r->refused.is_ok()) return false;
  ask_for_rgb(png, info);
  Picture& p = r->stored.picture;
  p.width = static_cast<int>(png_get_image_width(png, info));
  p.height = static_cast<int>(png_get_image_height(png, info));
  if (png_get_rowbytes(png, info) != static_cast<size_t>(p.width) * 3) png_error(png, "rows of an unexpected size");
  p.rgb.resize(int64_t{p.width} * p.height * 3);
  for (int y = 0; y < p.height; ++y) r->rows.push_back(p.row(y));
  png_read_image(png, r->rows.data());
  png_read_end(png, info);
  png_uint_32 exif_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(png, info, &exif_bytes, &exif)) r->stored.orientation = exif_orientation({exif, exif_bytes});
  return true;
}

// False: see r.refused and r.message.
bool read_or_jump_back(png_structp png, png_infop info, Reading* r) {
  return setjmp(png_jmpbuf(png)) == 0 && read_all(png, info, r);
}

}  // namespace

Result<StoredPicture> decode_png(std::span<const uint8_t> bytes, const PictureLimits& limits) {
  Reading r{.bytes = bytes, .limits = &limits};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && read_or_jump_back(png, info, &r);
  if (png) png_destroy_read_struct(&png, &info, nullptr);
  if (done) return std::move(r.stored);
  if (!r.refused.is_ok()) return r.refused;
  return corrupt("{}", r.message[0] ? r.message : "out of memory");
}

}  // namespace lathe
