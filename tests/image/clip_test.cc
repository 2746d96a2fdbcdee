#include "image/clip.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "testing/image_files.h"

namespace lathe {

namespace {

using testing::test_picture;

class ClipFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const testing::Bytes& bytes) {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path folder_;
  VideoConfig config_ = ProcessorConfig().video;
};

TEST_F(ClipFolder, FramesComeInTheOrderOfTheirNamesAndOthersAreIgnored) {
  std::vector<Picture> frames;
  for (int i = 0; i < 5; ++i) frames.push_back(test_picture(60, 40, i));
  for (int i : {3, 0, 4, 2, 1})
    write(fmt::format("frame{}.{}", i, i % 2 ? "png" : "webp"),
          i % 2 ? testing::png(frames[i]) : testing::webp(frames[i]));
  write("notes.txt", {'h', 'i'});
  write(".hidden.png", {'h', 'i'});
  const Result<Clip> clip = read_clip(folder_, 2, config_);
  ASSERT_TRUE(clip.is_ok()) << clip.status().message();
  frames.push_back(frames.back());  // chosen twice, for an even number
  EXPECT_EQ(clip->patches.pixels, preprocess_video(frames, config_.pixels)->pixels);
  EXPECT_EQ(clip->timestamps, (std::vector<double>{0, 1, 2}));
}

TEST_F(ClipFolder, WithoutARateTheFramesCountAsChosen) {
  for (int i = 0; i < 5; ++i) write(fmt::format("f{}.png", 100 + i), testing::png(test_picture(28, 28, i)));
  const Result<Clip> clip = read_clip(folder_, 0, config_);
  ASSERT_TRUE(clip.is_ok());
  EXPECT_EQ(clip->patches.grid.t, 3);  // the last frame twice
  EXPECT_EQ(clip->timestamps, (std::vector<double>{0, 2.0 / 24, 4.0 / 24}));
  config_.max_frames = 4;
  EXPECT_EQ(read_clip(folder_, 0, config_).status().code(), StatusCode::kInvalid);
}

TEST_F(ClipFolder, ErrorsNameTheFolderOrTheFrame) {
  EXPECT_NE(read_clip(folder_, 2, config_).status().message().find(folder_), std::string::npos);
  EXPECT_EQ(read_clip(folder_ / "absent", 2, config_).status().code(), StatusCode::kNotFound);
  write("a.png", testing::png(test_picture(30, 30)));
  write("b.png", testing::png(test_picture(30, 31)));
  EXPECT_NE(read_clip(folder_, 2, config_).status().message().find("b.png"), std::string::npos);
  write("b.png", {1, 2, 3});
  EXPECT_NE(read_clip(folder_, 2, config_).status().message().find("b.png"), std::string::npos);
  for (double fps : {-1.0, 1e300, std::nan("")})
    EXPECT_EQ(read_clip(folder_, fps, config_).status().code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
