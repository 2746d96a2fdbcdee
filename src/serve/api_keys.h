#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lathe::serve {

// Whoever a key belongs to, and what it may take. A file of keys is TOML:
//
//   [[key]]
//   name = "alice"             # in logs and the fair queue; unique
//   key = "..."                # at least 16 bytes
//   priority = 0               # highest that its requests may ask for, -10..10
//   max_concurrent = 0         # requests at once; 0: no limit
//   tokens_per_minute = 0      # prompt and output; 0: no limit
//   cache_salt = ""            # forced on its requests, if not empty
//   metrics_only = false       # may read /metrics and nothing else
struct ApiKey {
  std::string name, key, cache_salt;
  int priority = 0;
  int max_concurrent = 0;
  int64_t tokens_per_minute = 0;
  bool metrics_only = false;
};

class ApiKeys {
 public:
  static Result<ApiKeys> load(const std::string& file);
  static Result<ApiKeys> parse(const std::string& toml, const std::string& file);
  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  // In a time that doesn't depend on how much of the key is right.
  const ApiKey* find(std::string_view key) const;

 private:
  std::vector<ApiKey> keys_;
};

// What each key has in use, by name. Any thread.
class Quotas {
 public:
  // Seconds until it is worth trying again; absent: the request may go on, and end() must follow.
  std::optional<int> begin(const ApiKey& key, double now);
  void end(const std::string& name);
  // Tokens are charged when they are known: a key in debt waits until it is paid off.
  void charge(const ApiKey& key, int64_t tokens, double now);

 private:
  struct Use {
    int running = 0;
    double tokens = 0;  // left in the bucket; at most a minute's worth
    double at = -1;
  };
  void refill(Use& use, const ApiKey& key, double now);
  std::mutex mutex_;
  std::vector<std::pair<std::string, Use>> uses_;
  Use& use(const std::string& name);
};

}  // namespace lathe::serve
