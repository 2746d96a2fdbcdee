#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "image/patches.h"

// Where pictures stand among token ids (model.md 11.4).

namespace lathe {

// From config.json.
struct MediaTokens {
  int32_t image = -1, video = -1, image_start = -1, image_end = -1, video_start = -1, video_end = -1;
};

struct VideoSpan {
  Grid grid;
  std::vector<double> timestamps;  // of each slice; the last one repeats if there are fewer
};

using Encode = std::function<std::vector<int32_t>(std::string_view text)>;

// A template's ids, with one `image` token an image and one `video` token a video, to the ids that the model reads: an
// image token becomes one a feature, a video token for each slice image_start, its image tokens, image_end and the
// encoded text "1.5 seconds". An error if the ids ask for another number of images or videos than there are.
Result<std::vector<int32_t>> expand_placeholders(std::span<const int32_t> ids, const MediaTokens& tokens,
                                                 std::span<const Grid> images, std::span<const VideoSpan> videos,
                                                 int merge, const Encode& encode);

// How many images and videos expanded ids hold is told by their grids: whoever has pictures for several sequences takes
// them in order. A token is a video's while more video_start than video_end came before it.
struct MediaUse {
  int64_t images = 0, videos = 0;  // taken from the front of the lists
  int64_t image_features = 0, video_features = 0;
};
// An error if some image of the list would have to be used in part, or the lists are too short.
Result<MediaUse> take_media(std::span<const int32_t> ids, const MediaTokens& tokens, std::span<const Grid> images,
                            std::span<const Grid> videos, int merge);

// For every position the feature row that replaces its embedding, or -1: images' features count up from first_image,
// videos' from first_video.
std::vector<int32_t> place_features(std::span<const int32_t> ids, const MediaTokens& tokens, int32_t first_image,
                                    int32_t first_video);

// The position of each image's first feature, then of each video's. An error if the ids don't hold just these media.
Result<std::vector<int>> first_positions(std::span<const int32_t> ids, const MediaTokens& tokens,
                                         std::span<const Grid> images, std::span<const Grid> videos, int merge);

}  // namespace lathe
