#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"

namespace lathe {

// Penalties and biases of one output, as ops/sample wants them: one entry a token that differs from the rest. A value:
// copied for what would come after a draft.
class LogitEdits {
 public:
  LogitEdits() = default;
  explicit LogitEdits(const Request& request);
  // The token stands in the output once more.
  void count(int32_t token);
  // It is never taken.
  void forbid(int32_t token);
  std::span<const LogitEdit> list() const { return list_; }
  // Whether count() changes anything.
  bool counts() const { return counts_; }

 private:
  LogitEdit& entry(int32_t token);
  bool counts_ = false;
  std::vector<LogitEdit> list_;
  std::unordered_map<int32_t, size_t> at_;
};

}  // namespace lathe
