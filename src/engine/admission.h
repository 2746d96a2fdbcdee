#pragma once

#include <optional>

#include "engine/service.h"

namespace lathe {

// What waits, and how fast it is worked off.
struct AdmissionLoad {
  int queued_requests = 0;
  int64_t queued_tokens = 0;     // of their prompts
  double tokens_per_second = 0;  // prompt tokens that were worked off lately; 0: unknown
  double seconds_a_start = 0;    // between two that left the queue while others waited, lately; 0: unknown
};

struct AdmissionLimits {
  int max_queue = 1024;
  int64_t max_queued_tokens = 0;
  double max_wait_seconds = 60;
  int max_context = 0;
  int max_choices = 0;  // of one request
};

// Whether a request of so many prompt tokens and choices may join the queue (serving.md 7).
std::optional<Refusal> refuse(int64_t prompt_tokens, int choices, const AdmissionLoad& load,
                              const AdmissionLimits& limits);

}  // namespace lathe
