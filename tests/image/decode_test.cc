#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "image/picture.h"
#include "testing/image_files.h"

namespace lathe {

namespace {

using testing::Bytes;
using testing::test_picture;

Picture decoded(const Bytes& bytes) {
  Result<Picture> p = decode_picture(bytes, "test");
  EXPECT_TRUE(p.is_ok()) << p.status().message();
  return p.is_ok() ? *p : Picture{};
}

int worst_difference(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return 256;
  int worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

TEST(Decode, LosslessFormatsGiveBackThePixels) {
  const Picture p = test_picture(37, 23);
  EXPECT_EQ(decoded(testing::png(p)).rgb, p.rgb);
  EXPECT_EQ(decoded(testing::png(37, 23, p.rgb, {.interlaced = true})).rgb, p.rgb);
  EXPECT_EQ(decoded(testing::webp(p)).rgb, p.rgb);
}

TEST(Decode, LossyFormatsComeClose) {
  Picture smooth{.width = 48, .height = 32, .rgb = Bytes(48 * 32 * 3)};
  for (int i = 0; i < 48 * 32; ++i)
    for (int c = 0; c < 3; ++c) smooth.rgb[i * 3 + c] = static_cast<uint8_t>(100 + i % 48 + c * 10);
  EXPECT_LE(worst_difference(decoded(testing::jpeg(48, 32, smooth.rgb)).rgb, smooth.rgb), 4);
  EXPECT_LE(worst_difference(decoded(testing::jpeg(48, 32, smooth.rgb, {.progressive = true})).rgb, smooth.rgb), 4);
  EXPECT_LE(worst_difference(decoded(testing::webp(smooth, false)).rgb, smooth.rgb), 10);
}

TEST(Decode, AlphaIsDroppedAndColoursUnderItStay) {
  const Bytes rgba = {10, 20, 30, 0, 40, 50, 60, 128};
  EXPECT_EQ(decoded(testing::png(2, 1, rgba, {.type = 6})).rgb, (Bytes{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(decoded(testing::png(2, 1, {7, 0, 9, 255}, {.type = 4})).rgb, (Bytes{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(decoded(testing::webp_rgba(2, 1, rgba)).rgb, (Bytes{10, 20, 30, 40, 50, 60}));
}

TEST(Decode, GreyIsWidenedFromEveryDepth) {
  EXPECT_EQ(decoded(testing::png(4, 1, {0b01000000}, {.type = 0, .depth = 1})).rgb,
            (Bytes{0, 0, 0, 255, 255, 255, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(decoded(testing::png(2, 1, {0b01110000}, {.type = 0, .depth = 2})).rgb, (Bytes{85, 85, 85, 255, 255, 255}));
  EXPECT_EQ(decoded(testing::png(2, 1, {0x3f}, {.type = 0, .depth = 4})).rgb, (Bytes{51, 51, 51, 255, 255, 255}));
  EXPECT_EQ(decoded(testing::png(2, 1, {3, 200}, {.type = 0})).rgb, (Bytes{3, 3, 3, 200, 200, 200}));
  EXPECT_EQ(decoded(testing::png(2, 1, {0x12, 0xff, 0xfe, 0x00}, {.type = 0, .depth = 16})).rgb,
            (Bytes{0x12, 0x12, 0x12, 0xfe, 0xfe, 0xfe}));
  const Bytes grey = decoded(testing::jpeg(16, 16, Bytes(256, 90), {.components = 1})).rgb;
  EXPECT_LE(worst_difference(grey, Bytes(768, 90)), 1);
}

TEST(Decode, SixteenBitColourKeepsItsHighByte) {
  EXPECT_EQ(decoded(testing::png(1, 1, {1, 255, 2, 0, 250, 128}, {.depth = 16})).rgb, (Bytes{1, 2, 250}));
}

TEST(Decode, PalettesAreLookedUpEvenWhereTransparent) {
  const testing::PngOptions options{.type = 3, .palette = {1, 2, 3, 200, 100, 50}, .transparent_first = true};
  EXPECT_EQ(decoded(testing::png(3, 1, {1, 0, 1}, options)).rgb, (Bytes{200, 100, 50, 1, 2, 3, 200, 100, 50}));
}

// As Adobe's files: 255 is no ink. Half of every ink on half-black paper.
TEST(Decode, CmykIsTakenInverted) {
  Bytes cmyk;
  for (int i = 0; i < 256; ++i) cmyk.insert(cmyk.end(), {255, 0, 128, 200});
  const Bytes rgb = decoded(testing::jpeg(16, 16, cmyk, {.components = 4, .quality = 100})).rgb;
  for (int i = 0; i < 256; ++i) {
    EXPECT_NEAR(rgb[i * 3], 200, 2);
    EXPECT_NEAR(rgb[i * 3 + 1], 0, 2);
    EXPECT_NEAR(rgb[i * 3 + 2], 100, 2);
  }
}

// The eight ways a camera may have stored "1 2 3 / 4 5 6".
TEST(Decode, ExifOrientationIsApplied) {
  const std::vector<std::pair<int, std::string>> stored_as[] = {{{3, "123456"}}, {{3, "321654"}}, {{3, "654321"}},
                                                                {{3, "456123"}}, {{2, "142536"}}, {{2, "362514"}},
                                                                {{2, "635241"}}, {{2, "415263"}}};
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (bool little : {false, true}) {
      const auto& [width, digits] = stored_as[orientation - 1][0];
      Picture stored{.width = width, .height = 6 / width, .rgb = {}};
      for (char c : digits) stored.rgb.insert(stored.rgb.end(), 3, static_cast<uint8_t>(c));
      const Bytes tiff = testing::tiff_orientation(orientation, little);
      for (const Bytes& file : {testing::png(stored.width, stored.height, stored.rgb, {.exif = tiff}),
                                testing::webp_with_exif(testing::webp(stored), stored.width, stored.height, tiff)}) {
        const Picture p = decoded(file);
        EXPECT_EQ(p.width, 3) << orientation;
        std::string seen;
        for (size_t i = 0; i < p.rgb.size(); i += 3) seen += static_cast<char>(p.rgb[i]);
        EXPECT_EQ(seen, "123456") << orientation;
      }
    }
  const Picture turned =
      decoded(testing::jpeg(16, 8, test_picture(16, 8).rgb, {.exif = testing::tiff_orientation(6, true)}));
  EXPECT_EQ(turned.width, 8);
  EXPECT_EQ(turned.height, 16);
}

std::vector<std::pair<std::string, Bytes>> one_of_each() {
  const Picture p = test_picture(40, 30);
  return {{"PNG", testing::png(p)},
          {"interlaced PNG", testing::png(40, 30, p.rgb, {.interlaced = true})},
          {"JPEG", testing::jpeg(40, 30, p.rgb)},
          {"progressive JPEG", testing::jpeg(40, 30, p.rgb, {.progressive = true})},
          {"lossy WebP", testing::webp(p, false)},
          {"lossless WebP", testing::webp(p)}};
}

TEST(BrokenImage, EveryTruncationIsAnErrorThatNamesTheFile) {
  for (const auto& [format, bytes] : one_of_each())
    // The last bytes are a marker or padding that some decoders don't need.
    for (size_t length = 0; length + 16 < bytes.size(); length += 1 + bytes.size() / 97) {
      const Result<Picture> p = decode_picture(std::span(bytes.data(), length), "holiday.img");
      ASSERT_FALSE(p.is_ok()) << format << " cut to " << length << " of " << bytes.size();
      EXPECT_NE(p.status().message().find("holiday.img"), std::string::npos) << p.status().message();
    }
}

// Whatever the bytes say, the answer is a picture within the limits or an error.
TEST(BrokenImage, FlippedBytesNeverCrash) {
  for (const auto& [format, good] : one_of_each()) {
    uint32_t random = 12345;
    int refused = 0;
    for (int round = 0; round < 300; ++round) {
      Bytes bytes = good;
      for (int i = 0; i <= round % 4; ++i) {
        random = random * 1664525u + 1013904223u;
        bytes[random % bytes.size()] ^= static_cast<uint8_t>(1 + (random >> 24) % 255);
      }
      const Result<Picture> p = decode_picture(bytes, "x", {.pixels = 1'000'000});
      if (p.is_ok()) {
        EXPECT_EQ(p->rgb.size(), size_t(p->width) * p->height * 3);
      }
      refused += !p.is_ok();
    }
    EXPECT_GT(refused, 0) << format;
  }
}

TEST(BrokenImage, ANoteInPlaceOfAnImage) {
  for (const char* text :
       {"", "GIF89a\x01\x01", "<html>not found</html>", "\x89PNG", "\xff\xd8", "RIFF\x04\x00\x00\x00WEB"}) {
    const Result<Picture> p =
        decode_picture(std::span(reinterpret_cast<const uint8_t*>(text), std::strlen(text)), "download.png");
    ASSERT_FALSE(p.is_ok()) << text;
    EXPECT_EQ(p.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(p.status().message().find("download.png"), std::string::npos);
  }
}

// A few hundred bytes that promise gigapixels are refused by their header.
TEST(BrokenImage, DecompressionBombsAreRefusedFromTheHeader) {
  Bytes png = testing::png(test_picture(8, 8));
  const uint32_t wide = 16000;  // and 16000 high: 256 megapixels
  for (int field : {16, 20})
    for (int i = 0; i < 4; ++i) png[field + i] = static_cast<uint8_t>(wide >> 8 * (3 - i));
  // The header's checksum must be right, or that alone would refuse it.
  uint32_t crc = 0xffffffff;
  for (int i = 12; i < 29; ++i) {
    crc ^= png[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  for (int i = 0; i < 4; ++i) png[29 + i] = static_cast<uint8_t>(~crc >> 8 * (3 - i));
  Bytes jpeg = testing::jpeg(16, 16, test_picture(16, 16).rgb);
  for (size_t i = 0; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0) {
      jpeg[i + 5] = jpeg[i + 7] = wide >> 8;
      jpeg[i + 6] = jpeg[i + 8] = wide & 255;
    }
  Bytes webp = testing::webp(test_picture(8, 8));
  ASSERT_EQ(webp[20], 0x2f);  // lossless: 14 bits of width - 1 and of height - 1 follow
  const uint32_t sides = (wide - 1) | (wide - 1) << 14;
  for (int i = 0; i < 4; ++i) webp[21 + i] = static_cast<uint8_t>((sides >> 8 * i) | (i == 3 ? webp[24] & 0xf0 : 0));
  for (const Bytes& bomb : {png, jpeg, webp}) {
    const Result<Picture> p = decode_picture(bomb, "bomb");
    ASSERT_FALSE(p.is_ok());
    EXPECT_EQ(p.status().code(), StatusCode::kInvalid) << p.status().message();
    EXPECT_NE(p.status().message().find("pixels"), std::string::npos) << p.status().message();
  }
}

TEST(BrokenImage, EachLimitRefusesAlone) {
  const Bytes bytes = testing::png(test_picture(40, 30));
  EXPECT_TRUE(decode_picture(bytes, "x", {.encoded_bytes = int64_t(bytes.size()), .pixels = 1200, .side = 40}).is_ok());
  for (const PictureLimits& l :
       {PictureLimits{.encoded_bytes = int64_t(bytes.size()) - 1}, {.pixels = 1199}, {.side = 39}})
    EXPECT_EQ(decode_picture(bytes, "x", l).status().code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
