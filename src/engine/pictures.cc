#include "engine/pictures.h"

#include <algorithm>

namespace lathe {

std::vector<Grid> Media::image_grids() const {
  std::vector<Grid> grids;
  for (const Patches& p : images) grids.push_back(p.grid);
  return grids;
}

std::vector<Grid> Media::clip_grids() const {
  std::vector<Grid> grids;
  for (const Clip& c : clips) grids.push_back(c.patches.grid);
  return grids;
}

std::vector<VideoSpan> Media::spans() const {
  std::vector<VideoSpan> spans;
  for (const Clip& c : clips) spans.push_back({c.patches.grid, c.timestamps});
  return spans;
}

MediaTokens media_tokens(const glm5_next::Config& c) {
  return {.image = c.image_token,
          .video = c.video_token,
          .image_start = c.image_start,
          .image_end = c.image_end,
          .video_start = c.video_start,
          .video_end = c.video_end};
}

Result<Media> read_media(const std::string& model_dir, const glm5_next::Config& config,
                         const std::vector<std::string>& images, const std::vector<std::string>& videos) {
  Media media;
  if (images.empty() && videos.empty()) return media;
  if (!config.vision) return invalid("{}: has no vision_config: the model takes no pictures", config.file);
  LATHE_ASSIGN(const ProcessorConfig processor, ProcessorConfig::read(model_dir));
  const glm5_next::VisionConfig& v = *config.vision;
  for (const PixelConfig* p : {&processor.image, &processor.video.pixels})
    if (p->patch != v.patch || p->temporal_patch != v.temporal_patch || p->merge != v.merge)
      return corrupt(
          "{}: processor_config.json cuts patches of {}x{}x{}, merged by {}; vision_config has {}x{}x{} and {}",
          model_dir, p->temporal_patch, p->patch, p->patch, p->merge, v.temporal_patch, v.patch, v.patch, v.merge);
  for (const std::string& file : images) {
    LATHE_ASSIGN(const Picture picture, read_picture(file));
    Result<Patches> patches = preprocess_image(picture, processor.image);
    if (!patches.is_ok()) return patches.status().within(file);
    media.images.push_back(std::move(patches).value());
  }
  constexpr double kFpsUnknown = 0;
  for (const std::string& folder : videos) {
    LATHE_ASSIGN(Clip clip, read_clip(folder, kFpsUnknown, processor.video));
    media.clips.push_back(std::move(clip));
  }
  return media;
}

Result<std::vector<MediaKey>> media_keys(const std::vector<int32_t>& tokens, const Media& media,
                                         const std::vector<std::string>& identities, const glm5_next::Config& config) {
  if (identities.size() != media.images.size() + media.clips.size())
    return invalid("{} identities for {} images and {} clips", identities.size(), media.images.size(),
                   media.clips.size());
  std::vector<MediaKey> keys;
  if (media.empty()) return keys;
  if (!config.vision) return invalid("{}: has no vision_config: the model takes no pictures", config.file);
  LATHE_ASSIGN(const std::vector<int> first, first_positions(tokens, media_tokens(config), media.image_grids(),
                                                             media.clip_grids(), config.vision->merge));
  for (size_t i = 0; i < first.size(); ++i) keys.push_back({first[i], identities[i]});
  std::sort(keys.begin(), keys.end(), [](const MediaKey& a, const MediaKey& b) { return a.position < b.position; });
  return keys;
}

namespace {

// How the media is spread over the sequences' placeholders.
Status place(const Media& media, const glm5_next::Config& config, const std::vector<std::vector<int32_t>>& tokens,
             int64_t image_rows, std::vector<std::vector<int32_t>>& row_of_token) {
  const std::vector<Grid> images = media.image_grids(), clips = media.clip_grids();
  const MediaTokens ids = media_tokens(config);
  const int merge = config.vision ? config.vision->merge : 1;
  size_t image = 0, clip = 0;
  int64_t first_image = 0, first_video = image_rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::span<const Grid> images_left = std::span(images).subspan(image),
                                clips_left = std::span(clips).subspan(clip);
    Result<MediaUse> use = take_media(tokens[i], ids, images_left, clips_left, merge);
    if (!use.is_ok()) return use.status().within(fmt::format("token list {}", i));
    row_of_token.push_back(
        place_features(tokens[i], ids, static_cast<int32_t>(first_image), static_cast<int32_t>(first_video)));
    image += use->images, clip += use->videos;
    first_image += use->image_features, first_video += use->video_features;
  }
  if (image != images.size() || clip != clips.size())
    return invalid("{} images and {} videos were given, the tokens have placeholders for {} and {}", images.size(),
                   clips.size(), image, clip);
  return Status::ok();
}

const Patches& patches_of(const Media& media, size_t index) {
  return index < media.images.size() ? media.images[index] : media.clips[index - media.images.size()].patches;
}

}  // namespace

Result<std::unique_ptr<PictureEncoder>> PictureEncoder::create(const glm5_next::Config& config,
                                                               const Checkpoint& checkpoint, Executor& executor) {
  if (!config.vision) return invalid("{}: has no vision_config: the model takes no pictures", config.file);
  std::unique_ptr<PictureEncoder> e(new PictureEncoder(config, executor));
  LATHE_ASSIGN(glm5_next::VisionWeights weights,
               glm5_next::load_vision_weights(*config.vision, checkpoint, executor.device()));
  e->tower_ = std::make_unique<glm5_next::VisionTower>(*config.vision, std::move(weights), executor.tower().dtype());
  return e;
}

Result<PictureFeatures> PictureEncoder::place(const Media& media,
                                              const std::vector<std::vector<int32_t>>& tokens) const {
  PictureFeatures out;
  const size_t count = media.images.size() + media.clips.size();
  int64_t rows = 0, image_rows = 0;
  for (size_t i = 0; i < count; ++i) {
    out.first_row.push_back(rows);
    const Patches* const one = &patches_of(media, i);
    rows += tower_->feature_rows({&one, 1});
    if (i + 1 == media.images.size()) image_rows = rows;
  }
  out.first_row.push_back(rows);
  out.encoded.assign(count, false);
  LATHE_RETURN_IF_ERROR(lathe::place(media, config_, tokens, image_rows, out.row_of_token));
  const int64_t width = config_.vision->out_hidden;
  const DType dtype = tower_->dtype();
  LATHE_ASSIGN(out.buffer, DeviceBuffer::allocate(executor_.device(), rows * width * dtype_bytes(dtype)));
  out.rows = {.data = out.buffer.as(), .dtype = dtype, .rows = rows, .width = width, .stride = width};
  return out;
}

Status PictureEncoder::encode(const Media& media, size_t index, PictureFeatures& features) {
  const Patches* const one = &patches_of(media, index);
  const int64_t bytes = tower_->activation_bytes(int64_t{one->grid.h} * one->grid.w);
  if (bytes > activations_.capacity_bytes()) {
    activations_ = Arena();
    LATHE_ASSIGN(activations_, Arena::create(executor_.device(), bytes));
  }
  activations_.reset();
  const int64_t first = features.first_row[index];
  LATHE_RETURN_IF_ERROR(tower_->encode(executor_.op_context(), activations_, {&one, 1},
                                       features.rows.slice(first, features.first_row[index + 1] - first)));
  LATHE_RETURN_IF_ERROR(executor_.device().synchronize());
  features.encoded[index] = true;
  return Status::ok();
}

Result<PictureFeatures> encode_media(const Media& media, const glm5_next::Config& config, const Checkpoint& checkpoint,
                                     Executor& executor, const std::vector<std::vector<int32_t>>& tokens) {
  // Without media an image token is a token like any other, as in the reference.
  if (media.empty()) return PictureFeatures();
  LATHE_ASSIGN(const auto encoder, PictureEncoder::create(config, checkpoint, executor));
  LATHE_ASSIGN(PictureFeatures features, encoder->place(media, tokens));
  for (size_t i = 0; i < features.encoded.size(); ++i) LATHE_RETURN_IF_ERROR(encoder->encode(media, i, features));
  return features;
}

}  // namespace lathe
