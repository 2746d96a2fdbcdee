#include "engine/admission.h"

#include <algorithm>
#include <cmath>

namespace lathe {

std::optional<Refusal> refuse(int64_t prompt, int choices, const AdmissionLoad& load, const AdmissionLimits& limits) {
  if (prompt >= limits.max_context)
    return Refusal{Refusal::Why::kTooLong,
                   fmt::format("the prompt has {} tokens, the context holds {} with at least one to generate", prompt,
                               limits.max_context)};
  if (choices > limits.max_choices)
    return Refusal{Refusal::Why::kTooLong,
                   fmt::format("n is {}, the server decodes {} at once", choices, limits.max_choices)};
  if (load.queued_requests >= limits.max_queue)
    return Refusal{Refusal::Why::kQueueFull, fmt::format("{} requests are waiting", load.queued_requests)};
  // A request on its own may be as large as it likes: it only has to fit.
  if (load.queued_requests > 0 && load.queued_tokens + prompt > limits.max_queued_tokens)
    return Refusal{Refusal::Why::kQueueTokens, fmt::format("{} prompt tokens are waiting", load.queued_tokens)};
  // Whichever is scarcer: rows for prompts, or places among those that run.
  const double by_rows =
      load.tokens_per_second > 0 ? static_cast<double>(load.queued_tokens) / load.tokens_per_second : 0;
  const double wait = std::max(by_rows, load.queued_requests * load.seconds_a_start);
  if (wait > limits.max_wait_seconds)
    return Refusal{Refusal::Why::kWait, fmt::format("the wait would be {:.0f} s", wait),
                   static_cast<int>(std::clamp(std::ceil(wait - limits.max_wait_seconds), 1.0, 600.0))};
  return std::nullopt;
}

}  // namespace lathe
