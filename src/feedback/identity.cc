#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/device.h"
#include "feedback/build_info.h"
#include "ops/registry.h"

namespace lathe {

std::string isa_features() {
  const CpuFeatures& f = cpu_features();
  std::string all;
  auto note = [&](bool has, const char* name) {
    if (has) all += fmt::format("{}{}", all.empty() ? "" : " ", name);
  };
  note(f.avx2, "avx2"), note(f.avx512, "avx512"), note(f.avx512_bf16, "avx512_bf16"),
      note(f.avx512_vnni, "avx512_vnni");
  return all.empty() ? "portable" : all;
}

std::string identity_text() {
  const BuildInfo& b = build_info();
  return fmt::format("lathe {} ({}), build {}\n{}, {}, instruction sets: {}", b.version, b.commit, b.build_id,
                     b.compiler, b.build_type, isa_features());
}

std::string identity_json() {
  const BuildInfo& b = build_info();
  nlohmann::json ops = nlohmann::json::object();
  for (const AnyOp& op : all_ops()) ops[op.name] = op.variants;
  return nlohmann::json{{"version", b.version},
                        {"commit", b.commit},
                        {"build_id", b.build_id},
                        {"compiler", b.compiler},
                        {"flags", b.flags},
                        {"build_type", b.build_type},
                        {"isa", isa_features()},
                        {"devices", device_names()},
                        {"operators", ops},
                        {"probes",
                         {{"levels", {"off", "counters", "full"}},
                          {"default", "off"},
                          {"injection", "off unless --inject; a trace says what was injected"}}}}
      .dump(2);
}

}  // namespace lathe
