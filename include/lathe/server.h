#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lathe/status.h"

// The HTTP server embedded in a program: OpenAI's and Anthropic's APIs over one model.
namespace lathe {

// Everything that can be set: by a TOML file, then by the environment (LATHE_PORT=...), then by flags (--port ...).
struct ServerConfig {
  // -- model and engine
  std::string model;                  // folder of a checkpoint
  std::string served_name;            // "": the folder's name
  std::string device = "cpu", dtype;  // dtype "": as config.json says
  int64_t threads = 0;                // 0: all cores
  int64_t max_context = 0;            // tokens of prompt and output; 0: the model's limit, at most 131072
  std::vector<std::string> variants;  // OP=NAME
  bool strict = false;
  int64_t max_running = 64, step_tokens = 2048, cache_tokens = 0;
  int64_t checkpoints = 0, checkpoint_interval = 1024, host_tier_bytes = 0;
  int64_t drafts = 3;
  int64_t audit_tokens_per_minute = 0;
  double audit_share = 1;

  // -- listeners
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  bool open_without_keys = false;
  std::vector<std::string> allowed_hosts;
  std::string keys_file;
  std::string admin;  // "": none; "unix:PATH", or HOST:PORT
  bool page = true;

  // -- admission
  int64_t max_queue = 1024;
  double max_queue_capacities = 4, max_wait_seconds = 60;

  // -- requests
  bool reject_unknown_fields = false;
  double temperature = -1, top_p = -1, min_p = -1;  // negative: as generation_config.json says
  int64_t top_k = -2;
  std::vector<std::string> template_keys = {"reasoning_effort", "enable_thinking", "clear_thinking", "thinking"};
  int64_t max_images = 64, image_bytes = 20 << 20, image_pixels = 64'000'000;
  double image_seconds = 10;
  int64_t workers = 2, decode_workers = 2, max_preparing = 256;
  int64_t grammar_cache_bytes = 512 << 20;

  // -- connections
  int64_t max_connections = 8192, send_buffer_bytes = 64 << 10, all_bodies_bytes = 1 << 30;
  double idle_seconds = 120, header_seconds = 10, body_idle_seconds = 60, write_stall_seconds = 60, ping_seconds = 15;
  double drain_seconds = 120, stall_seconds = 30;

  // -- what is told
  std::string log_level = "info";
  bool log_prompts = false, vllm_metrics = false;
  std::string trace;  // "": none
};

// One key of the configuration: what check-config, the documents and the help text say about it.
struct ConfigKey {
  std::string name, type, group, fallback, range, meaning;
};
const std::vector<ConfigKey>& server_config_keys();
// Key and value as text, in the same order.
std::vector<std::pair<std::string, std::string>> server_config_values(const ServerConfig& config);

// `file` may be "". Errors name file or variable, key and what is expected. An unknown key is an error, too, with the
// nearest known one.
Result<ServerConfig> load_server_config(const std::string& file, const std::vector<std::string>& environment,
                                        const std::vector<std::pair<std::string, std::string>>& flags);
// What can't be meant together, such as a public address without keys.
Status check_server_config(const ServerConfig& config);

// What /version and the start-up log say of the binary.
struct ServerIdentity {
  std::string version, commit, build_id;
};

// Values of all keys, limits and the memory plan, as text.
Result<std::string> describe_server(const ServerConfig& config);

enum class ServerEnd { kDrained, kEngineFailed };
// Serves until SIGTERM and the drain after it, or until the engine fails.
Result<ServerEnd> run_server(const ServerConfig& config, const ServerIdentity& identity);

std::string server_openapi();  // the OpenAPI document, JSON
std::string server_manual();   // docs/serving.md's tables

}  // namespace lathe
