#include "feedback/parameters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace lathe {

namespace {

// What the configuration's table doesn't say: unit, dependencies, and what docs/paths.md promises.
struct Annotation {
  const char *name, *unit, *needs, *numerics;
};
constexpr const char *kSame = "same bits", *kOrder = "other order", *kPrecision = "other precision";
constexpr Annotation kAnnotations[] = {
    {"device", "", "", kOrder},
    {"dtype", "", "", kPrecision},
    {"threads", "threads", "", kSame},
    {"max_context", "tokens", "at most the model's; memory for its pages", kSame},
    {"variants", "", "each must apply to the model's sizes and the machine", kOrder},
    {"strict", "", "", kOrder},
    {"max_running", "requests", "memory for their slots", kSame},
    {"step_tokens", "tokens", "same bits with strict", kOrder},
    {"cache_tokens", "tokens", "memory for their pages", kSame},
    {"checkpoints", "sequences", "memory for their slots", kSame},
    {"checkpoint_interval", "tokens", "checkpoints", kOrder},
    {"host_tier_bytes", "bytes", "checkpoints", kSame},
    {"drafts", "tokens", "a model with an MTP block; none with strict", kOrder},
    {"audit_tokens_per_minute", "tokens a minute", "", kSame},
    {"max_queue", "requests", "", kSame},
    {"max_queue_capacities", "capacities of the pages", "", kSame},
    {"max_wait_seconds", "s", "", kSame},
    {"workers", "threads", "", kSame},
    {"decode_workers", "threads", "", kSame},
    {"max_preparing", "requests", "", kSame},
};

}  // namespace

std::vector<Parameter> launch_parameters(std::span<const AnyOp> ops) {
  std::vector<Parameter> all;
  const std::vector<ConfigKey>& keys = server_config_keys();
  for (const Annotation& a : kAnnotations) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == a.name; });
    LATHE_CHECK(key != keys.end());
    all.push_back({key->name, key->type, key->range, a.unit, key->fallback, key->meaning, a.needs, a.numerics, true});
  }
  for (const AnyOp& op : ops)
    all.push_back({fmt::format("variants: {}", op.name), "string", fmt::format("{}", fmt::join(op.variants, ", ")), "",
                   "the first that applies", "how the operator is computed", "the model's sizes and the machine",
                   kOrder, true});
  return all;
}

nlohmann::json to_json(const Parameter& p) {
  return {{"name", p.name},         {"type", p.type},        {"range", p.range},
          {"unit", p.unit},         {"default", p.fallback}, {"needs", p.needs},
          {"numerics", p.numerics}, {"restart", p.restart},  {"meaning", p.meaning}};
}

}  // namespace lathe
