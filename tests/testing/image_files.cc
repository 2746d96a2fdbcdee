#include "testing/image_files.h"

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lathe::testing {

Picture test_picture(int width, int height, int seed) {
  Picture p{.width = width, .height = height, .rgb = Bytes(size_t(width) * height * 3)};
  uint32_t noise = static_cast<uint32_t>(seed) * 2654435761u;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      noise = noise * 1664525u + 1013904223u;
      uint8_t* out = p.row(y) + x * 3;
      out[0] = static_cast<uint8_t>(x * 255 / width);
      out[1] = static_cast<uint8_t>((y * 5 + x * 3 + seed * 17) % 256);
      out[2] = static_cast<uint8_t>(((x / 7 + y / 5) % 2 ? 40 : 200) + (noise >> 28));
    }
  return p;
}

Bytes png(int width, int height, const Bytes& rows, const PngOptions& options) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t count) {
        auto* bytes = static_cast<Bytes*>(png_get_io_ptr(p));
        bytes->insert(bytes->end(), data, data + count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, width, height, options.depth, options.type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty())
    png_set_PLTE(png, info, reinterpret_cast<png_const_colorp>(options.palette.data()),
                 static_cast<int>(options.palette.size() / 3));
  png_byte clear = 0;
  if (options.transparent_first) png_set_tRNS(png, info, &clear, 1, nullptr);
  Bytes exif = options.exif;
  if (!exif.empty()) png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  const size_t stride = rows.size() / height;
  for (int y = 0; y < height; ++y) pointers.push_back(const_cast<png_bytep>(rows.data() + y * stride));
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

Bytes png(const Picture& picture) { return png(picture.width, picture.height, picture.rgb); }

Bytes jpeg(int width, int height, const Bytes& rows, const JpegOptions& options) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &data, &bytes);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = options.components;
  jpeg.in_color_space = options.components == 1 ? JCS_GRAYSCALE : options.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (!options.exif.empty()) {
    Bytes block = {'E', 'x', 'i', 'f', 0, 0};
    block.insert(block.end(), options.exif.begin(), options.exif.end());
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, block.data(), static_cast<unsigned>(block.size()));
  }
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(rows.data() + size_t(y) * width * options.components);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes out(data, data + bytes);
  std::free(data);
  return out;
}

namespace {
Bytes taken(uint8_t* data, size_t bytes) {
  Bytes out(data, data + bytes);
  WebPFree(data);
  return out;
}
}  // namespace

Bytes webp(const Picture& p, bool lossless) {
  uint8_t* data = nullptr;
  const size_t bytes = lossless ? WebPEncodeLosslessRGB(p.rgb.data(), p.width, p.height, p.width * 3, &data)
                                : WebPEncodeRGB(p.rgb.data(), p.width, p.height, p.width * 3, 90, &data);
  return taken(data, bytes);
}

Bytes webp_rgba(int width, int height, const Bytes& rgba) {
  WebPConfig config;
  WebPConfigInit(&config);
  WebPConfigLosslessPreset(&config, 6);
  config.exact = 1;  // keep the colours under alpha 0
  WebPPicture picture;
  WebPPictureInit(&picture);
  picture.use_argb = 1;
  picture.width = width;
  picture.height = height;
  WebPPictureImportRGBA(&picture, rgba.data(), width * 4);
  WebPMemoryWriter writer;
  WebPMemoryWriterInit(&writer);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  WebPEncode(&config, &picture);
  WebPPictureFree(&picture);
  return taken(writer.mem, writer.size);
}

Bytes webp_with_exif(const Bytes& simple, int width, int height, const Bytes& tiff) {
  Bytes out = {'R', 'I', 'F', 'F', 0, 0, 0, 0, 'W', 'E', 'B', 'P', 'V', 'P', '8', 'X', 10, 0, 0, 0, 8, 0, 0, 0};
  for (int side : {width - 1, height - 1})
    for (int i = 0; i < 3; ++i) out.push_back(static_cast<uint8_t>(side >> 8 * i));
  out.insert(out.end(), simple.begin() + 12, simple.end());
  out.insert(out.end(), {'E', 'X', 'I', 'F', static_cast<uint8_t>(tiff.size()), 0, 0, 0});
  out.insert(out.end(), tiff.begin(), tiff.end());
  if (out.size() % 2) out.push_back(0);
  const auto size = static_cast<uint32_t>(out.size() - 8);
  for (int i = 0; i < 4; ++i) out[4 + i] = static_cast<uint8_t>(size >> 8 * i);
  return out;
}

Bytes tiff_orientation(int orientation, bool little_endian) {
  const auto o = static_cast<uint8_t>(orientation);
  if (little_endian) return {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, o, 0, 0, 0, 0, 0, 0, 0};
  return {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, o, 0, 0, 0, 0, 0, 0};
}

}  // namespace lathe::testing
