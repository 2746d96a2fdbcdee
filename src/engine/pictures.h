#pragma once

#include <string>
#include <vector>

#include "cache/prefix_keys.h"
#include "engine/executor.h"
#include "image/clip.h"
#include "image/placeholders.h"

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
};

// Runs the vision tower over media and assigns its features to the placeholders of already expanded token lists, in
// order over all of them. Placeholders without media, and media without placeholders, are errors that count both.
Result<PictureFeatures> encode_media(const Media& media, const glm5_next::Config& config, const Checkpoint& checkpoint,
                                     Executor& executor, const std::vector<std::vector<int32_t>>& tokens);

}  // namespace lathe
