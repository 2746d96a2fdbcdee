// Any text as config.json: refused with a message that names the file, or a configuration whose parts agree.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/glm5_next/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto result = lathe::glm5_next::Config::parse(text, "config.json");
  if (!result.is_ok()) {
    if (result.status().message().find("config.json") == std::string::npos) std::abort();
    return 0;
  }
  const lathe::glm5_next::TextConfig& c = result->text;
  if (c.layers.empty() || c.index_top_k % c.kpool || c.experts % c.groups || c.top_k > c.experts || c.hidden < 1)
    std::abort();
  for (size_t i = 0; i < c.layers.size(); ++i)
    if (c.layers[i].shared_index && (i == 0 || c.layers[i - 1].mixer != lathe::glm5_next::MixerKind::kSparse))
      std::abort();
  return 0;
}
