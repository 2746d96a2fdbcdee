#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/prefix_keys.h"
#include "engine/executor.h"
#include "image/clip.h"
#include "image/placeholders.h"
#include "model/glm5_next/vision_tower.h"

namespace lathe {

// Pictures and clips of a request, read and cut into patches, in the order they were given.
struct Media {
  std::vector<Patches> images;
  std::vector<Clip> clips;

  std::vector<Grid> image_grids() const, clip_grids() const;
  std::vector<VideoSpan> spans() const;
  bool empty() const { return images.empty() && clips.empty(); }
};

// Reads picture files and folders of frames by the model folder's processor_config.json.
Result<Media> read_media(const std::string& model_dir, const glm5_next::Config& config,
                         const std::vector<std::string>& images, const std::vector<std::string>& videos);

MediaTokens media_tokens(const glm5_next::Config& config);

// Which picture or clip begins where among already expanded tokens, as PrefixKeys want it. identities: one an image,
// then one a clip.
Result<std::vector<MediaKey>> media_keys(const std::vector<int32_t>& tokens, const Media& media,
                                         const std::vector<std::string>& identities, const glm5_next::Config& config);

// Encoded media: feature rows on the device, and which of them each token's embedding is replaced by.
struct PictureFeatures {
  Rows rows;
  DeviceBuffer buffer;
  std::vector<std::vector<int32_t>> row_of_token;  // by sequence, -1: none; empty if there is no media
  std::vector<int64_t> first_row;                  // of each image, then of each clip, and the end
  std::vector<bool> encoded;                       // likewise
};

// The vision tower, with what it works in. One thread.
class PictureEncoder {
 public:
  static Result<std::unique_ptr<PictureEncoder>> create(const glm5_next::Config& config, const Checkpoint& checkpoint,
                                                        Executor& executor);
  // Assigns features to the placeholders of already expanded token lists, in order over all of them; nothing is encoded
  // yet. Placeholders without media, and media without placeholders, are errors that count both.
  Result<PictureFeatures> place(const Media& media, const std::vector<std::vector<int32_t>>& tokens) const;
  // Encodes one picture or clip; returns when its rows are there.
  Status encode(const Media& media, size_t index, PictureFeatures& features);

 private:
  PictureEncoder(const glm5_next::Config& config, Executor& executor) : config_(config), executor_(executor) {}

  const glm5_next::Config& config_;
  Executor& executor_;
  std::unique_ptr<glm5_next::VisionTower> tower_;
  Arena activations_;
};

// Loads the tower for this media alone, and encodes all of it.
Result<PictureFeatures> encode_media(const Media& media, const glm5_next::Config& config, const Checkpoint& checkpoint,
                                     Executor& executor, const std::vector<std::vector<int32_t>>& tokens);

}  // namespace lathe
