#pragma once

#include <memory>

#include "base/arena.h"
#include "feedback/kda_oracle_state.h"

// One head's recurrence in each of the forms that the operators have, fed with activated tokens.
namespace lathe {

class KdaRunningForm {
 public:
  virtual ~KdaRunningForm() = default;
  virtual const char* name() const = 0;
  // n <= 16 tokens from the front of `tokens`; o [n][128], valid until the next call; stride in floats.
  virtual const float* step(const KdaTokens& tokens, int n) = 0;
  // As it stands now, [V, K].
  virtual void read_state(float* state) = 0;
};

// The best instructions of this machine. Memory comes from `arena`.
std::vector<std::unique_ptr<KdaRunningForm>> kda_running_forms(Arena& arena);

enum class KdaScanForm { kIncrement, kIncrementTf32, kProductTf32 };
const char* kda_scan_form_name(KdaScanForm form);

// Scan over equal segments, one pass for their maps and one for outputs from the states that the maps lead to.
class KdaScanPass {
 public:
  KdaScanPass(KdaScanForm form, int segments, int64_t tokens_per_segment, Arena& arena);
  ~KdaScanPass();

  // Both take tokens in order, n <= 16 at a time and never across segments.
  void add_to_map(const KdaTokens& tokens, int n);
  const float* step(const KdaTokens& tokens, int n);
  // A of a finished segment, [K, K], and its B, [V, K].
  void read_map(int segment, float* a) const;
  void read_map_b(int segment, float* b) const;
  // The state before a segment (or after the last), as joined from the maps; and the one that `step` has reached.
  void read_joined(int segment, float* state) const;
  void read_state(float* state) const;

  const KdaScanForm form;
  const int segments;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lathe
