#pragma once

#include <string>
#include <vector>

#include "engine/pictures.h"
#include "image/processor_config.h"
#include "serve/conversation.h"

namespace lathe::serve {

struct ImageRules {
  int64_t max_images = 64;
  PictureLimits limits;
  double seconds = 10;  // for all pictures of a request
};

struct ReadImages {
  Media media;
  std::vector<std::string> keys;  // one a picture: 32 bytes over its bytes, size and how it is preprocessed
};

// Pictures of data: URIs, decoded and cut into patches. What is wrong with one is told in fixed words
// (code invalid_image); `why` then says it in one word, for the metrics.
ReadImages read_images(const std::vector<ImageSource>& sources, const PixelConfig& pixels, const ImageRules& rules,
                       std::string& why, Errors& errors);

// Bytes of base64 text, with or without padding; false if it is none.
bool decode_base64(std::string_view text, std::vector<uint8_t>& bytes);
std::string encode_base64(std::string_view bytes);

}  // namespace lathe::serve
