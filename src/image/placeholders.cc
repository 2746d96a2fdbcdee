#include "image/placeholders.h"

#include <algorithm>

namespace lathe {

namespace {

void append_image(const MediaTokens& tokens, int64_t features, std::vector<int32_t>& out) {
  out.insert(out.end(), features, tokens.image);
}

void append_video(const MediaTokens& tokens, const VideoSpan& video, int merge, const Encode& encode,
                  std::vector<int32_t>& out) {
  for (int slice = 0; slice < video.grid.t; ++slice) {
    out.push_back(tokens.image_start);
    append_image(tokens, video.grid.tokens_of_slice(merge), out);
    out.push_back(tokens.image_end);
    const size_t known = video.timestamps.size();
    const double time = known ? video.timestamps[std::min<size_t>(slice, known - 1)] : 0;
    const std::vector<int32_t> text = encode(fmt::format("{:.1f} seconds", time));
    out.insert(out.end(), text.begin(), text.end());
  }
}

// Follows ids and knows whether it is inside a video.
class VideoTracker {
 public:
  explicit VideoTracker(const MediaTokens& tokens) : tokens_(tokens) {}
  bool inside(int32_t id) {
    started_ += id == tokens_.video_start;
    ended_ += id == tokens_.video_end;
    return started_ > ended_;
  }

 private:
  const MediaTokens& tokens_;
  int64_t started_ = 0, ended_ = 0;
};

// Takes grids until they hold `features`; false: they can't.
bool take(std::span<const Grid> grids, int merge, int64_t features, int64_t& taken) {
  for (taken = 0; features > 0 && taken < static_cast<int64_t>(grids.size()); ++taken)
    features -= grids[taken].tokens(merge);
  return features == 0;
}

Status mismatch(const char* what, int64_t features, std::span<const Grid> grids, int merge) {
  std::string sizes;
  for (size_t i = 0; i < std::min<size_t>(grids.size(), 8); ++i)
    sizes += fmt::format("{}{}", i ? ", " : "", grids[i].tokens(merge));
  return invalid("the ids hold {} {} tokens; the next {}s have {}", features, what, what,
                 sizes.empty() ? "none" : sizes);
}

}  // namespace

Result<std::vector<int32_t>> expand_placeholders(std::span<const int32_t> ids, const MediaTokens& tokens,
                                                 std::span<const Grid> images, std::span<const VideoSpan> videos,
                                                 int merge, const Encode& encode) {
  const auto image_tokens = std::count(ids.begin(), ids.end(), tokens.image),
             video_tokens = std::count(ids.begin(), ids.end(), tokens.video);
  if (image_tokens != static_cast<int64_t>(images.size()) || video_tokens != static_cast<int64_t>(videos.size()))
    return invalid("the prompt asks for {} images and {} videos; {} and {} were given", image_tokens, video_tokens,
                   images.size(), videos.size());
  std::vector<int32_t> out;
  size_t image = 0, video = 0;
  for (int32_t id : ids) {
    if (id == tokens.image)
      append_image(tokens, images[image++].tokens(merge), out);
    else if (id == tokens.video)
      append_video(tokens, videos[video++], merge, encode, out);
    else
      out.push_back(id);
  }
  return out;
}

Result<MediaUse> take_media(std::span<const int32_t> ids, const MediaTokens& tokens, std::span<const Grid> images,
                            std::span<const Grid> videos, int merge) {
  MediaUse use;
  VideoTracker tracker(tokens);
  for (int32_t id : ids) {
    const bool video = tracker.inside(id);
    if (id == tokens.image) ++(video ? use.video_features : use.image_features);
  }
  if (!take(images, merge, use.image_features, use.images)) return mismatch("image", use.image_features, images, merge);
  if (!take(videos, merge, use.video_features, use.videos)) return mismatch("video", use.video_features, videos, merge);
  return use;
}

std::vector<int32_t> place_features(std::span<const int32_t> ids, const MediaTokens& tokens, int32_t first_image,
                                    int32_t first_video) {
  std::vector<int32_t> feature;
  feature.reserve(ids.size());
  VideoTracker tracker(tokens);
  for (int32_t id : ids) {
    const bool video = tracker.inside(id);
    feature.push_back(id != tokens.image ? -1 : video ? first_video++ : first_image++);
  }
  return feature;
}

Result<std::vector<int>> first_positions(std::span<const int32_t> ids, const MediaTokens& tokens,
                                         std::span<const Grid> images, std::span<const Grid> videos, int merge) {
  LATHE_ASSIGN(const MediaUse use, take_media(ids, tokens, images, videos, merge));
  if (use.images != static_cast<int64_t>(images.size()) || use.videos != static_cast<int64_t>(videos.size()))
    return invalid("the ids hold {} images and {} videos; {} and {} were given", use.images, use.videos, images.size(),
                   videos.size());
  const std::vector<int32_t> feature = place_features(ids, tokens, 0, static_cast<int32_t>(use.image_features));
  std::vector<int> position_of(use.image_features + use.video_features);
  for (size_t p = 0; p < feature.size(); ++p)
    if (feature[p] >= 0) position_of[feature[p]] = static_cast<int>(p);
  std::vector<int> first;
  int64_t row = 0;
  for (std::span<const Grid> grids : {images, videos})
    for (const Grid& grid : grids) {
      first.push_back(position_of[row]);
      row += grid.tokens(merge);
    }
  return first;
}

}  // namespace lathe
