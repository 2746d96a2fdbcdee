#include "engine/generation_defaults.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace lathe {

namespace {
constexpr int kMaxFileBytes = 1 << 20;
}

Result<SampleSettings> read_generation_defaults(const std::string& model_dir) {
  SampleSettings s;
  const std::string path = model_dir + "/generation_config.json";
  if (!std::filesystem::exists(path)) return s;
  LATHE_ASSIGN(const nlohmann::json json, read_json_file(path, kMaxFileBytes));
  JsonReader r(json, path);
  s.temperature = static_cast<float>(r.number("temperature", 0, 0, 100));
  s.top_p = static_cast<float>(r.number("top_p", 1, 0, 1));
  if (json.contains("do_sample") && json["do_sample"].is_boolean() && !json["do_sample"].get<bool>()) s.temperature = 0;
  LATHE_RETURN_IF_ERROR(r.status());
  return s;
}

}  // namespace lathe
