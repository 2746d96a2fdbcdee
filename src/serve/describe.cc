#include <algorithm>
#include <thread>

#include "engine/run_settings.h"
#include "lathe/server.h"
#include "model/checkpoint.h"
#include "model/glm5_next/inventory.h"
#include "model/glm5_next/memory_plan.h"
#include "serve/api_keys.h"
#include "serve/http.h"

// What check-config prints.
namespace lathe {

namespace {

constexpr int kDefaultContext = 131072;

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

Result<std::string> describe_memory(const ServerConfig& c) {
  LATHE_ASSIGN(const glm5_next::Config config, glm5_next::Config::read(c.model));
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(c.model));
  const glm5_next::Inventory inventory = glm5_next::take_inventory(config, checkpoint);
  glm5_next::MemoryRequest r;
  const int limit = config.text.max_positions;
  if (c.max_context > limit) return invalid("max_context {}: the model's limit is {}", c.max_context, limit);
  r.context = c.max_context ? c.max_context : std::min(limit, kDefaultContext);
  r.batch = static_cast<int>(c.max_running);
  r.rows = c.step_tokens;
  r.threads = static_cast<int>(c.threads ? c.threads : std::max(1u, std::thread::hardware_concurrency()));
  r.mtp = c.drafts > 0 && config.text.mtp_layers > 0;
  r.vision = config.vision.has_value();
  LATHE_ASSIGN(r.dtype, activation_dtype(c.dtype, config.text));
  const glm5_next::MemoryPlan whole = glm5_next::plan_memory(config, inventory.tensors, r);
  // Sequences share the pages, so their number follows from cache_tokens and not from the longest context.
  const int64_t tokens = c.cache_tokens ? c.cache_tokens : r.context;
  const int64_t pages = (tokens + whole.page_tokens - 1) / std::max<int64_t>(1, whole.page_tokens) * whole.page_bytes;
  const int64_t all = whole.weights + whole.vectors + whole.slots + pages + whole.activations + whole.scratch;
  return fmt::format(
      "memory\n  weights      {}\n  vectors      {}\n  slots        {} for {} sequences\n  pages        {} for {} "
      "tokens{}\n"
      "  activations  {} for {} rows\n  scratch      {}\n  sum          {}\n",
      mebibytes(whole.weights), mebibytes(whole.vectors), mebibytes(whole.slots), r.batch, mebibytes(pages), tokens,
      c.cache_tokens ? "" : " (one context; the server takes more where the machine has it)",
      mebibytes(whole.activations), r.rows, mebibytes(whole.scratch), mebibytes(all));
}

}  // namespace

Result<std::string> describe_server(const ServerConfig& c) {
  LATHE_RETURN_IF_ERROR(check_server_config(c));
  std::string out;
  if (!c.keys_file.empty()) {
    LATHE_ASSIGN(const serve::ApiKeys keys, serve::ApiKeys::load(c.keys_file));
    out += fmt::format("keys\n  {} in {}\n", keys.size(), c.keys_file);
  }
  std::string group;
  const std::vector<std::pair<std::string, std::string>> values = server_config_values(c);
  for (size_t i = 0; i < values.size(); ++i) {
    const ConfigKey& k = server_config_keys()[i];
    if (k.group != group) out += k.group + "\n";
    group = k.group;
    out += fmt::format("  {:<24} {}\n", k.name, values[i].second);
  }
  out += fmt::format(
      "Fixed\n  header                   {} bytes, {} fields\n  body                     {} bytes\n  JSON depth        "
      "       64\n",
      serve::HttpLimits::kHeaderBytes, serve::HttpLimits::kHeaders, serve::HttpLimits::kBodyBytes);
  LATHE_ASSIGN(const std::string memory, describe_memory(c));
  return out + memory;
}

}  // namespace lathe
