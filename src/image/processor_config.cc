#include "image/processor_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/mapped_file.h"

namespace lathe {

namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxPatch = 1024, kMaxTokens = 1 << 20;
constexpr int kBicubic = 3;  // PIL's number
constexpr int kMaxPatchValues = 1 << 20;

std::array<double, 3> colours(JsonReader& r, const char* field, std::array<double, 3> fallback) {
  if (!r.has(field)) return fallback;
  const std::vector<double> values = r.numbers(field);
  if (values.size() != 3) {
    r.fail(field, "expected three numbers, for red, green and blue");
    return fallback;
  }
  return {values[0], values[1], values[2]};
}

// What we always do must not be switched off.
void require(JsonReader& r, const char* field) {
  if (!r.boolean(field, true)) r.fail(field, "false: pictures are always converted, resized and padded here");
}

PixelConfig read_pixels(JsonReader& r, PixelConfig c) {
  c.patch = static_cast<int>(r.integer("patch_size", c.patch, 1, kMaxPatch));
  c.temporal_patch = static_cast<int>(r.integer("temporal_patch_size", c.temporal_patch, 1, 64));
  c.merge = static_cast<int>(r.integer("merge_size", c.merge, 1, 64));
  c.expand_factor = static_cast<int>(r.integer("patch_expand_factor", c.expand_factor, 1, 64));
  c.min_tokens = static_cast<int>(r.integer("min_image_tokens", c.min_tokens, 1, kMaxTokens));
  c.max_tokens = static_cast<int>(r.integer("max_image_tokens", c.max_tokens, 1, kMaxTokens));
  c.rescale = r.boolean("do_rescale", c.rescale);
  c.rescale_factor = r.number("rescale_factor", c.rescale_factor, 1e-12, 1e12);
  c.normalise = r.boolean("do_normalize", c.normalise);
  c.mean = colours(r, "image_mean", c.mean);
  c.std = colours(r, "image_std", c.std);
  require(r, "do_resize");
  require(r, "do_convert_rgb");
  if (r.integer("resample", kBicubic, 0, 100) != kBicubic) r.fail("resample", "only 3, bicubic, is implemented");
  if (c.min_tokens > c.max_tokens) r.fail("min_image_tokens", "greater than max_image_tokens");
  if (c.normalise && (c.std[0] <= 0 || c.std[1] <= 0 || c.std[2] <= 0)) r.fail("image_std", "must be greater than 0");
  if (c.patch_width() > kMaxPatchValues || c.factor() > kMaxPatch)
    r.fail("patch_size", "a patch of this size is absurd");
  return c;
}

VideoConfig read_video(JsonReader& r, VideoConfig c) {
  c.pixels = read_pixels(r, c.pixels);
  c.fps = r.number("fps", c.fps, 1e-6, 1e6);
  c.max_frames = static_cast<int>(r.integer("max_frames", c.max_frames, 1, 1 << 20));
  c.max_duration = r.number("max_duration", c.max_duration, 0, 1e9);
  return c;
}

}  // namespace

Result<ProcessorConfig> ProcessorConfig::parse(const std::string& text, const std::string& file) {
  LATHE_ASSIGN(const nlohmann::json json, parse_json(text, file));
  if (!json.is_object()) return corrupt("{}: expected a JSON object", file);
  ProcessorConfig config;
  JsonReader top(json, file);
  const nlohmann::json* image = top.object("image_processor");
  JsonReader image_reader(image ? *image : json, file, image ? "image_processor" : "");
  config.image = read_pixels(image_reader, config.image);
  LATHE_RETURN_IF_ERROR(image_reader.status());
  if (const nlohmann::json* video = top.object("video_processor")) {
    JsonReader video_reader(*video, file, "video_processor");
    config.video = read_video(video_reader, config.video);
    LATHE_RETURN_IF_ERROR(video_reader.status());
  }
  LATHE_RETURN_IF_ERROR(top.status());
  return config;
}

Result<ProcessorConfig> ProcessorConfig::read(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  std::error_code ignored;
  std::filesystem::path file = dir / "processor_config.json";
  if (!std::filesystem::exists(file, ignored) && std::filesystem::exists(dir / "preprocessor_config.json", ignored))
    file = dir / "preprocessor_config.json";
  LATHE_ASSIGN(const std::string text, read_text_file(file, kMaxFileBytes));
  return parse(text, file);
}

}  // namespace lathe
