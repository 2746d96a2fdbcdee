#include "serve/api_keys.h"

#include <openssl/crypto.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "base/mapped_file.h"

namespace lathe::serve {

namespace {

constexpr int64_t kMaxFileBytes = 4 << 20;
constexpr size_t kLeastKeyBytes = 16, kMostKeyBytes = 512;

Status read_key(const toml::table& t, const std::string& where, ApiKey& key) {
  for (const auto& [name, found] : t) {
    const std::string field(name.str());
    const toml::node& node = found;
    auto text = [&](std::string& to) {
      const auto v = node.value_exact<std::string>();
      if (v) to = *v;
      return v.has_value();
    };
    auto integer = [&](auto& to, int64_t low, int64_t high) {
      const auto v = node.value_exact<int64_t>();
      if (v) to = static_cast<std::remove_reference_t<decltype(to)>>(*v);
      return v && *v >= low && *v <= high;
    };
    bool good;
    if (field == "name")
      good = text(key.name);
    else if (field == "key")
      good = text(key.key);
    else if (field == "cache_salt")
      good = text(key.cache_salt) && key.cache_salt.size() <= 128;
    else if (field == "priority")
      good = integer(key.priority, -10, 10);
    else if (field == "max_concurrent")
      good = integer(key.max_concurrent, 0, 1 << 20);
    else if (field == "tokens_per_minute")
      good = integer(key.tokens_per_minute, 0, int64_t{1} << 50);
    else if (field == "metrics_only") {
      const auto v = node.value_exact<bool>();
      good = v.has_value();
      if (v) key.metrics_only = *v;
    } else
      return invalid("{}: there is no field '{}'", where, field);
    if (!good) return invalid("{}: {} has a wrong type or is out of range", where, field);
  }
  if (key.name.empty()) return invalid("{}: name is missing", where);
  if (key.key.size() < kLeastKeyBytes || key.key.size() > kMostKeyBytes)
    return invalid("{}: key of '{}' must have {} to {} bytes", where, key.name, kLeastKeyBytes, kMostKeyBytes);
  for (char c : key.key)
    if (c <= ' ' || c > '~') return invalid("{}: key of '{}' must be printable ASCII without spaces", where, key.name);
  return Status::ok();
}

bool equal(std::string_view given, std::string_view kept) {
  // As many bytes are looked at whatever is given.
  std::string padded(given.substr(0, kept.size()));
  padded.resize(kept.size());
  const int differ = CRYPTO_memcmp(padded.data(), kept.data(), kept.size());
  return (differ == 0) & (given.size() == kept.size());
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& file) {
  LATHE_ASSIGN(const std::string text, read_text_file(file, kMaxFileBytes));
  return parse(text, file);
}

Result<ApiKeys> ApiKeys::parse(const std::string& source, const std::string& file) {
  toml::table table;
  try {
    table = toml::parse(source, file);
  } catch (const toml::parse_error& e) {
    return corrupt("{}:{}: {}", file, e.source().begin.line, e.description());
  }
  ApiKeys all;
  for (const auto& [name, node] : table)
    if (name.str() != "key")
      return invalid("{}: there is no field '{}'; keys are [[key]]", file, std::string(name.str()));
  const toml::array* list = table["key"].as_array();
  if (!list || list->empty()) return invalid("{}: has no [[key]]", file);
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: key {}", file, i + 1);
    const toml::table* entry = (*list)[i].as_table();
    if (!entry) return invalid("{}: must be a table", where);
    ApiKey key;
    LATHE_RETURN_IF_ERROR(read_key(*entry, where, key));
    for (const ApiKey& other : all.keys_)
      if (other.name == key.name || other.key == key.key)
        return invalid("{}: name or key of '{}' is used twice", where, key.name);
    all.keys_.push_back(std::move(key));
  }
  return all;
}

const ApiKey* ApiKeys::find(std::string_view key) const {
  const ApiKey* found = nullptr;
  for (const ApiKey& k : keys_)
    if (equal(key, k.key)) found = &k;
  return found;
}

Quotas::Use& Quotas::use(const std::string& name) {
  for (auto& [n, u] : uses_)
    if (n == name) return u;
  return uses_.emplace_back(name, Use{}).second;
}

void Quotas::refill(Use& u, const ApiKey& key, double now) {
  const double most = static_cast<double>(key.tokens_per_minute);
  u.tokens = u.at < 0 ? most : std::min(most, u.tokens + (now - u.at) * most / 60);
  u.at = now;
}

std::optional<int> Quotas::begin(const ApiKey& key, double now) {
  const std::lock_guard lock(mutex_);
  Use& u = use(key.name);
  if (key.max_concurrent && u.running >= key.max_concurrent) return 1;
  if (key.tokens_per_minute) {
    refill(u, key, now);
    if (u.tokens <= 0)
      return std::max(1, static_cast<int>(std::ceil((1 - u.tokens) * 60 / static_cast<double>(key.tokens_per_minute))));
  }
  ++u.running;
  return std::nullopt;
}

void Quotas::end(const std::string& name) {
  const std::lock_guard lock(mutex_);
  --use(name).running;
}

void Quotas::charge(const ApiKey& key, int64_t tokens, double now) {
  if (!key.tokens_per_minute) return;
  const std::lock_guard lock(mutex_);
  Use& u = use(key.name);
  refill(u, key, now);
  u.tokens -= static_cast<double>(tokens);
}

}  // namespace lathe::serve
