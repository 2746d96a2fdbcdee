#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "image/resize.h"
#include "testing/golden.h"
#include "testing/image_files.h"

// Pillow as a second oracle, where some python3 has it.

namespace lathe {

namespace {

using testing::Bytes;
using testing::test_picture;

class Pillow : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* candidate : {"python3", "/usr/bin/python3"})
      if (python_.empty() && std::system(fmt::format("{} -c 'import PIL' >/dev/null 2>&1", candidate).c_str()) == 0)
        python_ = candidate;
    if (python_.empty()) GTEST_SKIP() << "no python3 here has Pillow (apt install python3-pil)";
    folder_ = std::filesystem::path(::testing::TempDir()) / "lathe_pillow";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void write(const std::string& name, const Bytes& bytes) {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void ask() {
    const auto script = std::filesystem::path(testing::source_path("tests/image/pillow_oracle.py"));
    ASSERT_EQ(std::system(fmt::format("{} '{}' '{}'", python_, script.string(), folder_.string()).c_str()), 0);
  }
  Picture answer(const std::string& name) {
    std::ifstream in(folder_ / (name + ".rgb"), std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(in), {}};
    Picture p;
    if (bytes.size() < 8) return p;
    std::memcpy(&p.width, bytes.data(), 4);
    std::memcpy(&p.height, bytes.data() + 4, 4);
    p.rgb.assign(bytes.begin() + 8, bytes.end());
    return p;
  }
  std::string python_;
  std::filesystem::path folder_;
};

TEST_F(Pillow, DecodesTheSamePixels) {
  const Picture p = test_picture(61, 43);
  Bytes cmyk, rgba, grey;
  for (size_t i = 0; i < p.rgb.size(); i += 3) {
    cmyk.insert(cmyk.end(), {p.rgb[i], p.rgb[i + 1], p.rgb[i + 2], static_cast<uint8_t>(255 - i % 200)});
    rgba.insert(rgba.end(), {p.rgb[i], p.rgb[i + 1], p.rgb[i + 2], static_cast<uint8_t>(i)});
    grey.push_back(p.rgb[i]);
  }
  const testing::PngOptions palette{.type = 3, .palette = {1, 2, 3, 200, 100, 50, 9, 8, 7}, .transparent_first = true};
  Bytes indices(61 * 43);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint8_t>(i * i % 3);
  std::vector<std::pair<std::string, Bytes>> files = {
      {"rgb.png", testing::png(p)},
      {"interlaced.png", testing::png(61, 43, p.rgb, {.interlaced = true})},
      {"rgba.png", testing::png(61, 43, rgba, {.type = 6})},
      {"grey.png", testing::png(61, 43, grey, {.type = 0})},
      {"grey4.png", testing::png(16, 1, {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}, {.type = 0, .depth = 4})},
      {"grey1.png", testing::png(16, 1, {0x5a, 0x81}, {.type = 0, .depth = 1})},
      {"palette.png", testing::png(61, 43, indices, palette)},
      {"rgb16.png", testing::png(1, 2, {1, 255, 2, 0, 250, 128, 9, 9, 200, 255, 0, 127}, {.depth = 16})},
      {"colour.jpg", testing::jpeg(61, 43, p.rgb, {.quality = 80})},
      {"progressive.jpg", testing::jpeg(61, 43, p.rgb, {.quality = 60, .progressive = true})},
      {"grey.jpg", testing::jpeg(61, 43, grey, {.components = 1})},
      {"cmyk.jpg", testing::jpeg(61, 43, cmyk, {.components = 4})},
      {"lossy.webp", testing::webp(p, false)},
      {"lossless.webp", testing::webp(p)},
      {"alpha.webp", testing::webp_rgba(61, 43, rgba)},
  };
  for (int orientation = 2; orientation <= 8; ++orientation)
    files.push_back({fmt::format("turned{}.jpg", orientation),
                     testing::jpeg(61, 43, p.rgb, {.exif = testing::tiff_orientation(orientation, orientation % 2)})});
  files.push_back({"turned.png", testing::png(61, 43, p.rgb, {.exif = testing::tiff_orientation(6, false)})});
  files.push_back(
      {"turned.webp", testing::webp_with_exif(testing::webp(p), 61, 43, testing::tiff_orientation(8, true))});
  for (const auto& [name, bytes] : files) write(name, bytes);
  ask();
  for (const auto& [name, bytes] : files) {
    const Picture ours = decode_picture(bytes, name).value(), theirs = answer(name);
    EXPECT_EQ(ours.width, theirs.width) << name;
    EXPECT_EQ(ours.height, theirs.height) << name;
    EXPECT_TRUE(ours.rgb == theirs.rgb) << name;
  }
}

// The same filter with another rounding of its weights: a step of 1 here and there, 2 after two passes.
TEST_F(Pillow, ResizesToNeighbouringValues) {
  const Picture p = test_picture(97, 61);
  const std::vector<Size> sizes = {{10, 13}, {61, 40}, {30, 97}, {120, 200}, {1, 1}, {62, 98}, {400, 5}, {3, 500}};
  write("p.png", testing::png(p));
  std::string lines;
  for (Size s : sizes) lines += fmt::format("{} {}\n", s.width, s.height);
  write("p.png.sizes", Bytes(lines.begin(), lines.end()));
  ask();
  for (Size s : sizes) {
    const Picture ours = resize(p, s), theirs = answer(fmt::format("p.png.{}x{}", s.width, s.height));
    ASSERT_EQ(ours.rgb.size(), theirs.rgb.size());
    int worst = 0;
    double sum = 0;
    for (size_t i = 0; i < ours.rgb.size(); ++i) {
      worst = std::max(worst, std::abs(ours.rgb[i] - theirs.rgb[i]));
      sum += std::abs(ours.rgb[i] - theirs.rgb[i]);
    }
    EXPECT_LE(worst, 2) << s.width << " x " << s.height;
    EXPECT_LE(sum / static_cast<double>(ours.rgb.size()), 0.1) << s.width << " x " << s.height;
  }
}

}  // namespace

}  // namespace lathe
