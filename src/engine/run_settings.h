#pragma once

#include <string>
#include <vector>

#include "engine/executor.h"

namespace lathe {

// "f32" or "bf16"; "" is what config.json says.
Result<DType> activation_dtype(const std::string& name, const glm5_next::TextConfig& config);

// Rows of a device as f32 on the host, [rows, width]. Waits for the queue.
Status rows_to_host(Device& device, const Rows& rows, std::vector<float>& out);

// Encoded pictures of a request: feature rows on the device, and which of them each token's embedding is replaced by.
struct PictureFeatures {
  Rows rows;
  DeviceBuffer buffer;
  std::vector<std::vector<int32_t>> row_of_token;  // by sequence, -1: none; empty if there are no pictures
};

// Reads, preprocesses and encodes pictures and videos, and assigns their features to the placeholders of already
// expanded token lists, in order. Placeholders without pictures, or the other way round, are errors that count both.
Result<PictureFeatures> encode_pictures(const glm5_next::Config& config, const Checkpoint& checkpoint, Executor& executor,
                                        const std::vector<std::string>& images, const std::vector<std::string>& videos,
                                        const std::string& model_dir, const std::vector<std::vector<int32_t>>& tokens);

}  // namespace lathe
