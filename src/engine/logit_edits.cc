#include "engine/logit_edits.h"

#include <cmath>

namespace lathe {

LogitEdits::LogitEdits(const Request& r)
    : counts_(r.presence_penalty != 0 || r.frequency_penalty != 0 || r.repetition_penalty != 1) {
  for (const LogitBias& b : r.logit_bias) entry(b.token).bias += b.bias;
  if (r.repetition_penalty != 1)
    for (int32_t token : r.prompt) entry(token).seen = 1;
}

LogitEdit& LogitEdits::entry(int32_t token) {
  const auto [at, fresh] = at_.try_emplace(token, list_.size());
  if (fresh) list_.push_back({.token = token});
  return list_[at->second];
}

void LogitEdits::count(int32_t token) {
  if (!counts_) return;
  LogitEdit& e = entry(token);
  ++e.count, e.seen = 1;
}

void LogitEdits::forbid(int32_t token) { entry(token).bias = -INFINITY; }

}  // namespace lathe
