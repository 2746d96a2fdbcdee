// Pictures and clips end to end: pixels in files to logits, against the reference.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lathe/logits.h"
#include "testing/golden.h"
#include "testing/image_files.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::floats;
using testing::ints;
using testing::rms_ratio;
using testing::shape;

class Multimodal : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("lathe_multimodal_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Writes a [h, w, 3] u8 tensor, or frame `index` of [n, h, w, 3], as a PNG.
  std::string write_png(const Safetensors& golden, const std::string& tensor, int64_t index, const std::string& name) {
    const std::vector<int64_t> dims = shape(golden, tensor);
    const int64_t h = dims[dims.size() - 3], w = dims[dims.size() - 2];
    const uint8_t* pixels = static_cast<const uint8_t*>(golden.find(tensor)->data) + index * h * w * 3;
    const Picture picture{static_cast<int>(w), static_cast<int>(h), {pixels, pixels + h * w * 3}};
    const std::vector<uint8_t> bytes = testing::png(picture);
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(Multimodal, TwoPicturesInOnePrompt) {
  LATHE_GOLDEN(golden, "golden/multimodal_image.safetensors");
  std::vector<int32_t> ids = ints(golden, "input_ids");
  const size_t prompt = ids.size();
  for (int32_t id : ints(golden, "decode_ids")) ids.push_back(id);
  LogitsOptions options{.model = fixture("models/tiny"), .dtype = "f32"};
  options.images = {write_png(golden, "image0", 0, "a.png"), write_png(golden, "image1", 0, "b.png")};
  std::vector<float> expected = floats(golden, "logits"), decode = floats(golden, "decode_logits");
  expected.insert(expected.end(), decode.begin(), decode.end());
  for (const char* device : {"cpu", "sim"})
    for (int chunk : {0, 7}) {
      options.device = device, options.chunk = chunk, options.decode_from = static_cast<int>(prompt);
      const auto result = compute_logits(options, {ids});
      ASSERT_TRUE(result.is_ok()) << result.status().message();
      EXPECT_LE(rms_ratio(result.value()[0].logits, expected), 1e-4) << device << " chunk " << chunk;
    }
}

TEST_F(Multimodal, AClipAsAFolderOfFrames) {
  LATHE_GOLDEN(golden, "golden/multimodal_video.safetensors");
  for (int i = 0; i < 5; ++i) write_png(golden, "frames", i, fmt::format("frame{}.png", i));
  LogitsOptions options{.model = fixture("models/tiny"), .dtype = "f32"};
  options.videos = {folder_};
  const auto result = compute_logits(options, {ints(golden, "input_ids")});
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  EXPECT_LE(rms_ratio(result.value()[0].logits, floats(golden, "logits")), 1e-4);
}

TEST_F(Multimodal, AWrongNumberOfPicturesIsBadInput) {
  LATHE_GOLDEN(golden, "golden/multimodal_image.safetensors");
  LogitsOptions options{.model = fixture("models/tiny"), .dtype = "f32"};
  const std::string a = write_png(golden, "image0", 0, "a.png"), b = write_png(golden, "image1", 0, "b.png");
  for (const std::vector<std::string>& images : {std::vector<std::string>{a}, {a, b, b}, {b, a, a}}) {
    options.images = images;
    const auto result = compute_logits(options, {ints(golden, "input_ids")});
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalid) << result.status().message();
  }
}

}  // namespace
}  // namespace lathe
