#include "image/placeholders.h"

#include <gtest/gtest.h>

#include "testing/golden.h"

namespace lathe {

namespace {

constexpr MediaTokens kTokens{
    .image = 494, .video = 495, .image_start = 470, .image_end = 471, .video_start = 472, .video_end = 473};

// One id a character: enough to see where text went.
std::vector<int32_t> letters(std::string_view text) { return {text.begin(), text.end()}; }

// A prompt's ids as a template makes them: each run of image tokens becomes one placeholder.
std::vector<int32_t> folded(const std::vector<int32_t>& ids) {
  std::vector<int32_t> out;
  for (int32_t id : ids)
    if (id != kTokens.image || out.empty() || out.back() != id) out.push_back(id);
  return out;
}

TEST(Placeholders, ImagesExpandAsInTheReferencePrompt) {
  LATHE_GOLDEN(file, "golden/multimodal_image.safetensors");
  const std::vector<int32_t> ids = testing::ints(file, "input_ids"), g = testing::ints(file, "grid_thw");
  const std::vector<Grid> grids = {{g[0], g[1], g[2]}, {g[3], g[4], g[5]}};
  const auto expanded = expand_placeholders(folded(ids), kTokens, grids, {}, 2, letters);
  ASSERT_TRUE(expanded.is_ok()) << expanded.status().message();
  EXPECT_EQ(*expanded, ids);
}

TEST(Placeholders, AVideoExpandsAsInTheReferencePrompt) {
  LATHE_GOLDEN(file, "golden/multimodal_video.safetensors");
  const std::vector<int32_t> ids = testing::ints(file, "input_ids"), g = testing::ints(file, "grid_thw");
  // Between the video's marks stands one placeholder; the texts between slices come from the encoder, so take them from
  // the golden.
  const auto start = std::find(ids.begin(), ids.end(), kTokens.video_start),
             end = std::find(ids.begin(), ids.end(), kTokens.video_end);
  std::vector<int32_t> prompt(ids.begin(), start + 1);
  prompt.push_back(kTokens.video);
  prompt.insert(prompt.end(), end, ids.end());
  std::vector<std::string> texts;
  auto from = start;
  const Encode encode = [&](std::string_view text) {
    texts.emplace_back(text);
    const auto begin = std::find(from, end, kTokens.image_end) + 1;
    const auto stop = std::find(begin, end, kTokens.image_start);
    from = stop;
    return std::vector<int32_t>(begin, stop);
  };
  const std::vector<VideoSpan> videos = {{{g[0], g[1], g[2]}, {0, 1, 2}}};
  const auto expanded = expand_placeholders(prompt, kTokens, {}, videos, 2, encode);
  ASSERT_TRUE(expanded.is_ok());
  EXPECT_EQ(*expanded, ids);
  EXPECT_EQ(texts, (std::vector<std::string>{"0.0 seconds", "1.0 seconds", "2.0 seconds"}));
}

TEST(Placeholders, FirstPositionsOfEachPictureAndClip) {
  const Grid image{1, 4, 4}, small{1, 2, 2}, clip{2, 2, 4};  // 4, 1 and 2 x 2 tokens
  const int32_t i = kTokens.image, v = kTokens.image_start, w = kTokens.image_end;
  // Two pictures side by side, a clip between, a third picture.
  const std::vector<int32_t> ids = {7, i, i, i, i, i, kTokens.video_start, v, i, i, w, 9, v, i, i, w, kTokens.video_end,
                                    i, i, i, i};
  const std::vector<Grid> images = {image, small, image}, clips = {clip};
  EXPECT_EQ(first_positions(ids, kTokens, images, clips, 2).value(), (std::vector<int>{1, 5, 17, 8}));
  EXPECT_FALSE(first_positions(ids, kTokens, images, {}, 2).is_ok());
  const std::vector<Grid> too_many = {image, small, image, image};
  EXPECT_FALSE(first_positions(ids, kTokens, too_many, clips, 2).is_ok());
}

TEST(Placeholders, TheLastTimeRepeatsAndRoundsLikePython) {
  std::vector<std::string> texts;
  const Encode encode = [&](std::string_view text) {
    texts.emplace_back(text);
    return std::vector<int32_t>{};
  };
  const std::vector<int32_t> prompt = {kTokens.video};
  const std::vector<VideoSpan> videos = {{{4, 2, 2}, {0.25, 0.35, 12.05}}};
  ASSERT_TRUE(expand_placeholders(prompt, kTokens, {}, videos, 2, encode).is_ok());
  EXPECT_EQ(texts, (std::vector<std::string>{"0.2 seconds", "0.3 seconds", "12.1 seconds", "12.1 seconds"}));
}

TEST(Placeholders, AWrongCountIsAnError) {
  const std::vector<int32_t> prompt = {1, kTokens.image, 2};
  const std::vector<Grid> one = {{1, 2, 2}}, two = {{1, 2, 2}, {1, 2, 2}};
  EXPECT_TRUE(expand_placeholders(prompt, kTokens, one, {}, 2, letters).is_ok());
  EXPECT_EQ(expand_placeholders(prompt, kTokens, two, {}, 2, letters).status().code(), StatusCode::kInvalid);
  EXPECT_EQ(expand_placeholders(prompt, kTokens, {}, {}, 2, letters).status().code(), StatusCode::kInvalid);
}

TEST(Placeholders, FeaturesInsideAVideoCountApart) {
  const int32_t I = kTokens.image, B = kTokens.video_start, E = kTokens.video_end;
  const std::vector<int32_t> ids = {I, I, 5, B, I, 7, I, E, I, 3};
  EXPECT_EQ(place_features(ids, kTokens, 10, 100), (std::vector<int32_t>{10, 11, -1, -1, 100, -1, 101, -1, 12, -1}));
  const std::vector<Grid> images = {{1, 2, 2}, {1, 2, 4}, {1, 2, 2}}, videos = {{2, 2, 2}};
  const auto use = take_media(ids, kTokens, images, videos, 2);
  ASSERT_TRUE(use.is_ok());
  EXPECT_EQ(use->images, 2);
  EXPECT_EQ(use->videos, 1);
  EXPECT_EQ(use->image_features, 3);
  EXPECT_EQ(use->video_features, 2);
  const std::vector<Grid> too_large = {{1, 2, 2}, {1, 2, 6}};
  EXPECT_EQ(take_media(ids, kTokens, too_large, videos, 2).status().code(), StatusCode::kInvalid);
  EXPECT_EQ(take_media(ids, kTokens, images, {}, 2).status().code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
