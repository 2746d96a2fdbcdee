#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "base/edit_distance.h"
#include "base/mapped_file.h"
#include "lathe/server.h"

// The keys, in one table: TOML, environment, flags, check-config and documents follow from it.
namespace lathe {

namespace {

using C = ServerConfig;
constexpr int64_t kMost = int64_t{1} << 50;
constexpr int64_t kMaxConfigBytes = 1 << 20;

struct Key {
  const char *group, *name, *type, *meaning;
  std::string range;
  std::function<std::string(const C&)> show;
  // From text (environment, flags) and from TOML; an error says what is expected.
  std::function<Status(C&, const std::string&)> from_text;
  std::function<Status(C&, const toml::node&)> from_toml;
};

Status expected(const std::string& what) { return invalid("expected {}", what); }

template <class T>
bool parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

Key text(const char* group, const char* name, std::string C::* member, const char* meaning,
         std::vector<std::string> choices = {}) {
  const std::string range = fmt::format("{}", fmt::join(choices, ", "));
  auto set = [=](C& c, const std::string& v) -> Status {
    if (!choices.empty() && std::find(choices.begin(), choices.end(), v) == choices.end())
      return expected("one of " + range);
    c.*member = v;
    return Status::ok();
  };
  return {group,
          name,
          "string",
          meaning,
          range,
          [=](const C& c) { return c.*member; },
          set,
          [=](C& c, const toml::node& n) {
            const auto v = n.value_exact<std::string>();
            return v ? set(c, *v) : expected("a string");
          }};
}

Key texts(const char* group, const char* name, std::vector<std::string> C::* member, const char* meaning) {
  return {group,
          name,
          "list of strings",
          meaning,
          "",
          [=](const C& c) { return fmt::format("{}", fmt::join(c.*member, ",")); },
          [=](C& c, const std::string& v) {
            (c.*member).clear();
            for (size_t at = 0; at <= v.size() && !v.empty();) {
              const size_t comma = std::min(v.find(',', at), v.size());
              (c.*member).push_back(v.substr(at, comma - at));
              at = comma + 1;
            }
            return Status::ok();
          },
          [=](C& c, const toml::node& n) {
            std::vector<std::string> all;
            const toml::array* list = n.as_array();
            for (size_t i = 0; list && i < list->size(); ++i) {
              const auto v = (*list)[i].value_exact<std::string>();
              if (!v) return expected("a list of strings");
              all.push_back(*v);
            }
            if (!list) return expected("a list of strings");
            c.*member = all;
            return Status::ok();
          }};
}

Key boolean(const char* group, const char* name, bool C::* member, const char* meaning) {
  return {group,
          name,
          "boolean",
          meaning,
          "",
          [=](const C& c) { return std::string(c.*member ? "true" : "false"); },
          [=](C& c, const std::string& v) {
            if (v != "true" && v != "false" && v != "1" && v != "0") return expected("true or false");
            c.*member = v == "true" || v == "1";
            return Status::ok();
          },
          [=](C& c, const toml::node& n) {
            const auto v = n.value_exact<bool>();
            if (!v) return expected("true or false");
            c.*member = *v;
            return Status::ok();
          }};
}

Key integer(const char* group, const char* name, int64_t C::* member, int64_t low, int64_t high, const char* meaning) {
  const std::string range = high == kMost ? fmt::format("{}..", low) : fmt::format("{}..{}", low, high);
  auto set = [=](C& c, int64_t v) -> Status {
    if (v < low || v > high) return expected(fmt::format("an integer in {}, not {}", range, v));
    c.*member = v;
    return Status::ok();
  };
  return {group,
          name,
          "integer",
          meaning,
          range,
          [=](const C& c) { return std::to_string(c.*member); },
          [=](C& c, const std::string& v) {
            int64_t x = 0;
            return parse(v, x) ? set(c, x) : expected("an integer");
          },
          [=](C& c, const toml::node& n) {
            const auto v = n.value_exact<int64_t>();
            return v ? set(c, *v) : expected("an integer");
          }};
}

Key number(const char* group, const char* name, double C::* member, double low, double high, const char* meaning) {
  const std::string range = fmt::format("{}..{}", low, high);
  auto set = [=](C& c, double v) -> Status {
    if (!(v >= low && v <= high)) return expected(fmt::format("a number in {}, not {}", range, v));
    c.*member = v;
    return Status::ok();
  };
  return {group,
          name,
          "number",
          meaning,
          range,
          [=](const C& c) { return fmt::format("{}", c.*member); },
          [=](C& c, const std::string& v) {
            double x = 0;
            return parse(v, x) ? set(c, x) : expected("a number");
          },
          [=](C& c, const toml::node& n) {
            const auto v = n.is_number() ? n.value<double>() : std::nullopt;
            return v ? set(c, *v) : expected("a number");
          }};
}

std::vector<Key> make_keys() {
  const char *model = "Model and engine", *net = "Listeners", *gate = "Admission", *ask = "Requests",
             *line = "Connections", *told = "Logs and metrics";
  return {
      text(model, "model", &C::model, "folder of a checkpoint"),
      text(model, "served_name", &C::served_name, "the model's id in the APIs; empty: the folder's name"),
      text(model, "device", &C::device, "where to compute", {"cpu", "sim", "cuda"}),
      text(model, "dtype", &C::dtype, "activations and caches; empty: as config.json says", {"", "f32", "bf16"}),
      integer(model, "threads", &C::threads, 0, 1024, "threads that compute; 0: all cores"),
      integer(model, "max_context", &C::max_context, 0, 1 << 20,
              "tokens of prompt and output; 0: the model's limit, at most 131072"),
      texts(model, "variants", &C::variants, "variants of operators, OP=NAME"),
      boolean(model, "strict", &C::strict, "a row's logits depend, bit for bit, on its prefix alone; slower"),
      integer(model, "max_running", &C::max_running, 1, 4096, "choices decoded at once"),
      integer(model, "step_tokens", &C::step_tokens, 16, 1 << 20, "token rows of a step"),
      integer(model, "cache_tokens", &C::cache_tokens, 0, kMost, "capacity of the pages; 0: from the machine's memory"),
      integer(model, "checkpoints", &C::checkpoints, 0, 1 << 20,
              "slots of the prefix cache; 0: from the machine's memory"),
      integer(model, "checkpoint_interval", &C::checkpoint_interval, 16, 1 << 20,
              "tokens between checkpoints of a long prompt"),
      integer(model, "host_tier_bytes", &C::host_tier_bytes, 0, kMost, "memory of the cache's host tier; 0: off"),
      integer(model, "drafts", &C::drafts, 0, 16, "tokens drafted at most; 0: no speculation"),
      integer(model, "audit_tokens_per_minute", &C::audit_tokens_per_minute, 0, 1 << 20,
              "tokens recomputed on the oracles while serving; 0: none"),

      text(net, "host", &C::host, "address to listen on"),
      integer(net, "port", &C::port, 0, 65535, "port to listen on; 0: any free one"),
      boolean(net, "open_without_keys", &C::open_without_keys,
              "allow an address that others reach although there are no keys"),
      texts(net, "allowed_hosts", &C::allowed_hosts, "further names that a Host header may have on a loopback address"),
      text(net, "keys_file", &C::keys_file, "TOML file of keys; empty: none are needed"),
      text(net, "admin", &C::admin, "admin listener: unix:PATH, or HOST:PORT of a private address; empty: none"),
      boolean(net, "page", &C::page, "the page at /"),

      integer(gate, "max_queue", &C::max_queue, 1, 1 << 20, "requests that wait; further ones get 503"),
      number(gate, "max_queue_capacities", &C::max_queue_capacities, 0.01, 1e6,
             "queued prompt tokens, in capacities of the pages"),
      number(gate, "max_wait_seconds", &C::max_wait_seconds, 0.01, 1e6, "estimated wait"),

      boolean(ask, "reject_unknown_fields", &C::reject_unknown_fields,
              "answer 400 to fields that aren't known, instead of counting them"),
      number(ask, "temperature", &C::temperature, -1, 2, "default; negative: as generation_config.json says"),
      number(ask, "top_p", &C::top_p, -1, 1, "default, likewise"),
      number(ask, "min_p", &C::min_p, -1, 1, "default, likewise"),
      integer(ask, "top_k", &C::top_k, -2, 1 << 30, "default; -2: as generation_config.json says, -1 and 0: all"),
      texts(ask, "template_keys", &C::template_keys, "variables that chat_template_kwargs may set"),
      integer(ask, "max_images", &C::max_images, 0, 64, "images of a request"),
      integer(ask, "image_bytes", &C::image_bytes, 1, 20 << 20, "an image's encoded bytes"),
      integer(ask, "image_pixels", &C::image_pixels, 1, 64'000'000, "an image's pixels"),
      number(ask, "image_seconds", &C::image_seconds, 0.1, 10, "time for decoding a request's images"),
      integer(ask, "workers", &C::workers, 1, 256, "threads that read and tokenize requests"),
      integer(ask, "decode_workers", &C::decode_workers, 1, 256, "threads that decode images and compile grammars"),
      integer(ask, "max_preparing", &C::max_preparing, 1, 1 << 20,
              "requests being read and prepared; further ones get 503"),
      integer(ask, "grammar_cache_bytes", &C::grammar_cache_bytes, 0, kMost, "compiled grammars that are kept"),

      integer(line, "max_connections", &C::max_connections, 1, 1 << 20, "open connections; further ones are closed"),
      integer(line, "send_buffer_bytes", &C::send_buffer_bytes, 1024, 1 << 30,
              "of a stream; beyond that its delivery waits for the client"),
      integer(line, "all_bodies_bytes", &C::all_bodies_bytes, 1 << 20, kMost, "request bodies held at once"),
      number(line, "idle_seconds", &C::idle_seconds, 0.01, 86400, "a connection between two requests"),
      number(line, "header_seconds", &C::header_seconds, 0.01, 3600, "until a request's head is complete"),
      number(line, "body_idle_seconds", &C::body_idle_seconds, 0.01, 3600, "between two pieces of a body"),
      number(line, "write_stall_seconds", &C::write_stall_seconds, 0.01, 3600, "without the client taking a byte"),
      number(line, "ping_seconds", &C::ping_seconds, 0.01, 3600, "silence in a stream before a ping"),
      number(line, "drain_seconds", &C::drain_seconds, 0, 86400, "for running requests after SIGTERM"),
      number(line, "stall_seconds", &C::stall_seconds, 1, 86400,
             "without a finished step before /health/live says 503"),

      text(told, "log_level", &C::log_level, "least level that is logged", {"debug", "info", "warning", "error"}),
      boolean(told, "log_prompts", &C::log_prompts, "put prompts and outputs into the log"),
      boolean(told, "vllm_metrics", &C::vllm_metrics, "also show the main metrics under vllm: names"),
  };
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = make_keys();
  return all;
}

const Key* find_key(std::string_view name) {
  for (const Key& k : keys())
    if (name == k.name) return &k;
  return nullptr;
}

Status unknown_key(const std::string& where, const std::string& name) {
  std::vector<std::string> names;
  for (const Key& k : keys()) names.push_back(k.name);
  return invalid("{}: there is no key '{}'; the nearest is '{}'", where, name, nearest_name(name, names));
}

Status read_file(C& c, const std::string& file) {
  LATHE_ASSIGN(const std::string source, read_text_file(file, kMaxConfigBytes));
  toml::table table;
  try {
    table = toml::parse(source, file);
  } catch (const toml::parse_error& e) {
    return corrupt("{}:{}: {}", file, e.source().begin.line, e.description());
  }
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    const Key* found = find_key(key);
    if (!found) return unknown_key(fmt::format("{}:{}", file, node.source().begin.line), key);
    if (const Status s = found->from_toml(c, node); !s.is_ok())
      return s.within(fmt::format("{}:{}: {}", file, node.source().begin.line, key));
  }
  return Status::ok();
}

// LATHE_ variables that belong to others than the server.
bool is_elsewhere(std::string_view name) { return name == "LATHE_ISA" || name == "LATHE_TREE"; }

Status read_environment(C& c, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (!name.starts_with("LATHE_") || is_elsewhere(name) || equals == std::string::npos) continue;
    std::string key = name.substr(6);
    for (char& ch : key) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    const Key* found = find_key(key);
    if (!found) return unknown_key("environment variable " + name, key);
    LATHE_RETURN_IF_ERROR(found->from_text(c, entry.substr(equals + 1)).within("environment variable " + name));
  }
  return Status::ok();
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

}  // namespace

const std::vector<ConfigKey>& server_config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> out;
    for (const Key& k : keys()) out.push_back({k.name, k.type, k.group, k.show(C{}), k.range, k.meaning});
    return out;
  }();
  return all;
}

std::vector<std::pair<std::string, std::string>> server_config_values(const ServerConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Key& k : keys()) out.emplace_back(k.name, k.show(config));
  return out;
}

Result<ServerConfig> load_server_config(const std::string& file, const std::vector<std::string>& environment,
                                        const std::vector<std::pair<std::string, std::string>>& flags) {
  C c;
  if (!file.empty()) LATHE_RETURN_IF_ERROR(read_file(c, file));
  LATHE_RETURN_IF_ERROR(read_environment(c, environment));
  for (const auto& [name, value] : flags) {
    const Key* found = find_key(name);
    if (!found) return unknown_key("flags", name);
    LATHE_RETURN_IF_ERROR(found->from_text(c, value).within("--" + name));
  }
  LATHE_RETURN_IF_ERROR(check_server_config(c));
  return c;
}

Status check_server_config(const ServerConfig& c) {
  if (c.model.empty()) return invalid("model is not set: give --model DIR, LATHE_MODEL or model in the file");
  if (!is_loopback(c.host) && c.keys_file.empty() && !c.open_without_keys)
    return invalid("host {} can be reached by others: set keys_file, or open_without_keys if that is meant", c.host);
  if (!c.admin.empty() && !c.admin.starts_with("unix:") && c.admin.rfind(':') == std::string::npos)
    return invalid("admin '{}': expected unix:PATH or HOST:PORT", c.admin);
  if (c.admin.starts_with("0.0.0.0:") || c.admin.starts_with("[::]:") || c.admin.starts_with(":"))
    return invalid("admin '{}': every address is not a private one", c.admin);
  if (c.header_seconds > c.idle_seconds)
    return invalid("header_seconds {} is longer than idle_seconds {}", c.header_seconds, c.idle_seconds);
  if (c.top_p == 0) return invalid("top_p must be greater than 0");
  return Status::ok();
}

}  // namespace lathe
