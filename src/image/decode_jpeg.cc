#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h wants FILE and size_t before it, and jerror.h wants jpeglib.h before it: this order isn't the alphabet's.
#include <jpeglib.h>
//
#include <jerror.h>

#include "image/formats.h"
#include "image/orientation.h"

namespace lathe {

namespace {

// A progressive file may ask for any number of passes over the whole picture; encoders write about ten.
constexpr int kMaxScans = 200;
constexpr size_t kExifHeaderBytes = 6;

// What the callbacks share. Lives outside the frame that longjmp returns to; `errors` stays first, so that libjpeg's
// pointer to it is a pointer to this.
struct Reading {
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";
  std::span<const uint8_t> bytes;
  const PictureLimits* limits = nullptr;
  Status refused;  // by our own limits
  StoredPicture stored;
  std::vector<uint8_t> cmyk;  // one row
};

Reading* reading(j_common_ptr jpeg) { return reinterpret_cast<Reading*>(jpeg->err); }

[[noreturn]] void on_error(j_common_ptr jpeg) {
  Reading* r = reading(jpeg);
  jpeg->err->format_message(jpeg, r->message);
  std::longjmp(r->leave, 1);
}

// libjpeg goes on after damage and fills in grey: these warnings mean lost pixels.
bool means_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC || code == JWRN_BOGUS_PROGRESSION;
}

void on_message(j_common_ptr jpeg, int level) {
  if (level < 0 && means_damage(jpeg->err->msg_code)) on_error(jpeg);
}

void on_progress(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  std::snprintf(reading(jpeg)->message, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
  std::longjmp(reading(jpeg)->leave, 1);
}

int orientation_of(j_decompress_ptr jpeg) {
  for (jpeg_saved_marker_ptr m = jpeg->marker_list; m; m = m->next)
    if (m->marker == JPEG_APP0 + 1 && m->data_length > kExifHeaderBytes && std::memcmp(m->data, "Exif\0\0", 6) == 0)
      return exif_orientation({m->data + kExifHeaderBytes, m->data_length - kExifHeaderBytes});
  return 1;
}

// Adobe writes CMYK inverted, and so does everybody else: 255 is no ink. PIL's formula.
void cmyk_to_rgb(const uint8_t* cmyk, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x)
    for (int c = 0; c < 3; ++c) {
      const int paper = cmyk[x * 4 + 3], ink = 255 - cmyk[x * 4 + c];
      const int product = ink * paper + 128;
      rgb[x * 3 + c] = static_cast<uint8_t>(paper - ((product + (product >> 8)) >> 8));
    }
}

// False: see r.refused. Only plain values live here, since errors jump out of the middle; and a frame of its own, since
// setjmp's may keep nothing in registers.
[[gnu::noinline]] bool read_all(j_decompress_ptr jpeg, Reading* r) {
  jpeg_create_decompress(jpeg);
  r->progress.progress_monitor = on_progress;
  jpeg->progress = &r->progress;
  jpeg_mem_src(jpeg, r->bytes.data(), r->bytes.size());
  jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(jpeg, TRUE);
  r->refused = check_size(jpeg->image_width, jpeg->image_height, *r->limits);
  if (!r->refused.is_ok()) return false;
  r->stored.orientation = orientation_of(jpeg);
  const bool four = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
  jpeg->out_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(jpeg);
  Picture& p = r->stored.picture;
  p.width = static_cast<int>(jpeg->output_width);
  p.height = static_cast<int>(jpeg->output_height);
  p.rgb.resize(int64_t{p.width} * p.height * 3);
  if (four) r->cmyk.resize(int64_t{p.width} * 4);
  for (int y = 0; y < p.height; ++y) {
    JSAMPROW row = four ? r->cmyk.data() : p.row(y);
    jpeg_read_scanlines(jpeg, &row, 1);
    if (four) cmyk_to_rgb(row, p.width, p.row(y));
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

// False: see r.refused and r.message.
bool read_or_jump_back(j_decompress_ptr jpeg, Reading* r) { return setjmp(r->leave) == 0 && read_all(jpeg, r); }

}  // namespace

Result<StoredPicture> decode_jpeg(std::span<const uint8_t> bytes, const PictureLimits& limits) {
  Reading r{.errors = {}, .progress = {}, .leave = {}, .bytes = bytes, .limits = &limits};
  jpeg_decompress_struct jpeg = {};
  jpeg.err = jpeg_std_error(&r.errors);
  r.errors.error_exit = on_error;
  r.errors.emit_message = on_message;
  const bool done = read_or_jump_back(&jpeg, &r);
  jpeg_destroy_decompress(&jpeg);
  if (done) return std::move(r.stored);
  if (!r.refused.is_ok()) return r.refused;
  return corrupt("{}", r.message);
}

}  // namespace lathe
