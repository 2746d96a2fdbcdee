#include "image/processor_config.h"

#include <gtest/gtest.h>

#include "testing/golden.h"

namespace lathe {

namespace {

TEST(ProcessorConfig, ReadsTheFilesFields) {
  const std::string text = R"({
    "image_processor": {"patch_size": 16, "temporal_patch_size": 1, "merge_size": 4, "patch_expand_factor": 2, "min_image_tokens": 3,
      "max_image_tokens": 77, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 4], "do_rescale": false, "do_normalize": false,
      "rescale_factor": 0.5, "resample": 3, "image_processor_type": "Whatever"},
    "video_processor": {"fps": 0.5, "max_frames": 9, "max_duration": 12.5, "max_image_tokens": 1000}})";
  const Result<ProcessorConfig> c = ProcessorConfig::parse(text, "p.json");
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->image.patch, 16);
  EXPECT_EQ(c->image.temporal_patch, 1);
  EXPECT_EQ(c->image.factor(), 128);
  EXPECT_EQ(c->image.min_tokens, 3);
  EXPECT_EQ(c->image.max_tokens, 77);
  EXPECT_EQ(c->image.mean[2], 0.3);
  EXPECT_EQ(c->image.std[1], 2);
  EXPECT_FALSE(c->image.rescale);
  EXPECT_FALSE(c->image.normalise);
  EXPECT_EQ(c->image.rescale_factor, 0.5);
  EXPECT_EQ(c->video.fps, 0.5);
  EXPECT_EQ(c->video.max_frames, 9);
  EXPECT_EQ(c->video.max_duration, 12.5);
  EXPECT_EQ(c->video.pixels.max_tokens, 1000);
  EXPECT_EQ(c->video.pixels.patch, 14);
}

TEST(ProcessorConfig, AnEmptyFileMeansTheReferencesDefaults) {
  const Result<ProcessorConfig> c = ProcessorConfig::parse("{}", "p.json");
  ASSERT_TRUE(c.is_ok());
  EXPECT_EQ(c->image.max_tokens, 8000);
  EXPECT_EQ(c->video.pixels.max_tokens, 240000);
  EXPECT_EQ(c->video.fps, 2);
}

TEST(ProcessorConfig, ErrorsNameFileAndField) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "p.json"},
      {"{", "p.json"},
      {R"({"image_processor": 3})", "image_processor"},
      {R"({"image_processor": {"patch_size": 0}})", "image_processor.patch_size"},
      {R"({"image_processor": {"patch_size": "14"}})", "image_processor.patch_size"},
      {R"({"image_processor": {"image_mean": [1, 2]}})", "image_processor.image_mean"},
      {R"({"image_processor": {"image_std": [1, 0, 1]}})", "image_processor.image_std"},
      {R"({"image_processor": {"resample": 2}})", "image_processor.resample"},
      {R"({"image_processor": {"do_resize": false}})", "image_processor.do_resize"},
      {R"({"image_processor": {"min_image_tokens": 9, "max_image_tokens": 8}})", "image_processor.min_image_tokens"},
      {R"({"video_processor": {"fps": 0}})", "video_processor.fps"},
      {R"({"video_processor": {"max_frames": -1}})", "video_processor.max_frames"},
  };
  for (const auto& [text, field] : cases) {
    const Result<ProcessorConfig> c = ProcessorConfig::parse(text, "p.json");
    ASSERT_FALSE(c.is_ok()) << text;
    EXPECT_NE(c.status().message().find("p.json"), std::string::npos) << c.status().message();
    EXPECT_NE(c.status().message().find(field), std::string::npos) << c.status().message();
  }
}

TEST(ProcessorConfig, ReadsAModelFolder) {
  const std::string dir = testing::fixture("models/tiny");
  if (dir.empty()) GTEST_SKIP() << "models/tiny is absent";
  const Result<ProcessorConfig> c = ProcessorConfig::read(dir);
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->image.max_tokens, 8000);
  EXPECT_EQ(ProcessorConfig::read(dir + "/absent").status().code(), StatusCode::kNotFound);
}

}  // namespace

}  // namespace lathe
