#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "image/frame_choice.h"
#include "image/patches.h"
#include "image/resize.h"
#include "testing/golden.h"
#include "testing/image_files.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

#define LATHE_GOLDEN_JSON(var, relative)                                                                 \
  const std::string var##_path = testing::fixture(relative);                                             \
  if (var##_path.empty()) GTEST_SKIP() << relative << " is in neither tests/data nor the reference set"; \
  const Json var = read_json_file(var##_path, 1 << 20).value()

std::vector<uint8_t> bytes(const Safetensors& file, const std::string& name) {
  const TensorSpan t = file.find(name).value();
  const auto* begin = static_cast<const uint8_t*>(t.data);
  return {begin, begin + t.bytes};
}

Picture picture(const Safetensors& file, const std::string& name) {
  const std::vector<int64_t> shape = testing::shape(file, name);
  return {.width = static_cast<int>(shape[1]), .height = static_cast<int>(shape[0]), .rgb = bytes(file, name)};
}

TEST(SmartResize, EqualsTheReferenceOnEverySize) {
  LATHE_GOLDEN_JSON(table, "golden/smart_resize.json");
  int rows = 0;
  for (const Json& row : table) {
    const ResizeRule rule{.min_tokens = row["min_tokens"], .max_tokens = row["max_tokens"]};
    const Result<ResizePlan> plan = smart_resize(row["frames"], {row["height"], row["width"]}, rule);
    ASSERT_TRUE(plan.is_ok()) << row;
    EXPECT_EQ(plan->target, (Size{row["target"][0], row["target"][1]})) << row;
    EXPECT_EQ(plan->content, (Size{row["content"][0], row["content"][1]})) << row;
    ++rows;
  }
  EXPECT_GE(rows, 100);
}

TEST(SmartResize, RefusesABudgetBelowATokenASlice) {
  EXPECT_EQ(smart_resize(64, {100, 100}, {.min_tokens = 1, .max_tokens = 31}).status().code(), StatusCode::kInvalid);
  EXPECT_TRUE(smart_resize(64, {100, 100}, {.min_tokens = 1, .max_tokens = 32}).is_ok());
}

TEST(FrameChoice, EqualsTheReferenceOnEveryClip) {
  LATHE_GOLDEN_JSON(table, "golden/video_sampling.json");
  int rows = 0;
  for (const Json& row : table) {
    FrameSource source{.frames = row["total_frames"], .fps = row["fps"]};
    if (!row["duration"].is_null()) source.duration = row["duration"];
    VideoConfig config;
    config.max_duration = row["max_duration"];
    if (!row["target_fps"].is_null()) config.fps = row["target_fps"];
    std::vector<int64_t> chosen = choose_frames(source, config);
    EXPECT_EQ(static_cast<int64_t>(chosen.size()), row["count"].get<int64_t>()) << row;
    chosen.resize(std::min<size_t>(chosen.size(), 600));  // the table stops there
    EXPECT_EQ(chosen, row["indices"].get<std::vector<int64_t>>()) << row;
    ++rows;
  }
  EXPECT_GE(rows, 50);
}

// Exact bytes: resize, padding and the order of patches.
TEST(PreprocessImage, PatchesEqualTheReferenceByteForByte) {
  LATHE_GOLDEN(file, "golden/preprocess_images.safetensors");
  for (const std::string name : {"exact", "small", "tall", "one", "wide"}) {
    PixelConfig config;
    if (name == "tall" || name == "one") config.min_tokens = 2, config.max_tokens = 64;
    if (name == "wide") config.min_tokens = 4, config.max_tokens = 20;
    const Result<Patches> patches = preprocess_image(picture(file, name + ".image"), config);
    ASSERT_TRUE(patches.is_ok());
    const std::vector<int32_t> grid = testing::ints(file, name + ".grid_thw");
    ASSERT_EQ(patches->grid, (Grid{grid[0], grid[1], grid[2]})) << name;
    // The golden holds one temporal copy; ours are [channel, temporal, y, x].
    const std::vector<uint8_t> golden = bytes(file, name + ".patches_u8");
    for (int64_t i = 0; i < patches->grid.patches(); ++i)
      for (int channel = 0; channel < 3; ++channel)
        for (int copy = 0; copy < 2; ++copy)
          ASSERT_EQ(std::memcmp(&patches->pixels[i * 1176 + (channel * 2 + copy) * 196],
                                &golden[i * 588 + channel * 196], 196),
                    0)
              << name << " patch " << i << " channel " << channel;
    std::vector<float> head(8 * 1176);
    patches->write_values(0, 8, head.data());
    EXPECT_LE(testing::rms_ratio(head, testing::floats(file, name + ".patches_head")), 1e-7) << name;
  }
}

TEST(PreprocessImage, TheMultimodalPromptsPixelsEqualTheReference) {
  LATHE_GOLDEN(file, "golden/multimodal_image.safetensors");
  const std::vector<uint8_t> golden = bytes(file, "patches_u8");
  std::vector<uint8_t> ours;
  for (const char* name : {"image0", "image1"}) {
    const Patches p = preprocess_image(picture(file, name), PixelConfig()).value();
    ours.insert(ours.end(), p.pixels.begin(), p.pixels.end());
  }
  EXPECT_EQ(ours, golden);
}

TEST(PreprocessVideo, TheClipsPixelsEqualTheReference) {
  LATHE_GOLDEN(file, "golden/multimodal_video.safetensors");
  const std::vector<int64_t> shape = testing::shape(file, "frames");
  const std::vector<uint8_t> all = bytes(file, "frames");
  const size_t frame_bytes = all.size() / shape[0];
  std::vector<Picture> frames;
  for (int64_t i = 0; i < shape[0]; ++i)
    frames.push_back({static_cast<int>(shape[2]),
                      static_cast<int>(shape[1]),
                      {all.begin() + i * frame_bytes, all.begin() + (i + 1) * frame_bytes}});
  const Patches p = preprocess_video(frames, ProcessorConfig().video.pixels).value();
  const std::vector<int32_t> grid = testing::ints(file, "grid_thw");
  EXPECT_EQ(p.grid, (Grid{grid[0], grid[1], grid[2]}));
  EXPECT_EQ(p.pixels, bytes(file, "patches_u8"));
}

TEST(PreprocessVideo, RefusesFramesOfSeveralSizesAndNone) {
  const std::vector<Picture> frames = {testing::test_picture(30, 30), testing::test_picture(30, 31)};
  EXPECT_EQ(preprocess_video(frames, PixelConfig()).status().code(), StatusCode::kInvalid);
  EXPECT_EQ(preprocess_video({}, PixelConfig()).status().code(), StatusCode::kInvalid);
}

TEST(Normalise, EveryCombinationOfSwitches) {
  Patches p = preprocess_image({1, 1, {51, 102, 153}}, PixelConfig()).value();
  for (bool rescale : {false, true})
    for (bool normalise : {false, true}) {
      PixelConfig c;
      c.rescale = rescale, c.normalise = normalise;
      p = preprocess_image({1, 1, {51, 102, 153}}, c).value();
      const double unit = rescale ? 1 / 255.0 : 1;
      for (int channel = 0; channel < 3; ++channel) {
        const double x = 51 * (channel + 1) * unit;
        EXPECT_NEAR(p.value[channel][51 * (channel + 1)], normalise ? (x - c.mean[channel]) / c.std[channel] : x, 1e-4);
      }
    }
}

TEST(Resize, AFlatPictureStaysFlatAndASizeOfItsOwnChangesNothing) {
  const Picture flat{.width = 50, .height = 40, .rgb = std::vector<uint8_t>(50 * 40 * 3, 77)};
  for (Size size : {Size{1, 1}, {7, 90}, {80, 3}, {40, 51}}) {
    const Picture r = resize(flat, size);
    EXPECT_EQ(r.rgb, std::vector<uint8_t>(size.height * size.width * 3, 77));
  }
  const Picture p = testing::test_picture(33, 21);
  EXPECT_EQ(resize(p, {21, 33}).rgb, p.rgb);
}

TEST(Layout, PatchesRunThroughMergeBlocks) {
  const std::vector<Grid> grids = {{1, 2, 4}, {2, 2, 2}};
  const PatchLayout l = lay_out(grids, 2);
  EXPECT_EQ(l.row, (std::vector<int32_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(l.col, (std::vector<int32_t>{0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(l.segment_start, (std::vector<int32_t>{0, 8, 12, 16}));
}

}  // namespace

}  // namespace lathe
