#include "engine/step_plan.h"

#include <algorithm>

namespace lathe {

namespace {

int unfed(const Choice& c, const SequenceMemory& memory) { return c.length() - memory.position(c.sequence); }

PlannedRun decode(Choice& c, const SequenceMemory& memory, const StepLimits& limits, int room) {
  PlannedRun run{.choice = &c, .before = memory.position(c.sequence)};
  const int rest = unfed(c, memory);
  run.drafts = std::clamp(room - rest, 0, static_cast<int>(c.drafts.size()));
  run.rows = rest + run.drafts;
  run.draws = true;
  run.in_ring = limits.ring && c.output_tokens() > 0;
  run.logits = 1 + run.drafts;
  return run;
}

PlannedRun prefill(Choice& c, const SequenceMemory& memory, const StepLimits& limits, int room) {
  PlannedRun run{.choice = &c, .before = memory.position(c.sequence)};
  const int rest = unfed(c, memory);
  const bool all_logits = c.owner->request.prompt_logprobs >= 0 && !c.owner->forked;
  run.rows = std::min(room, rest);
  if (all_logits) run.rows = std::min(run.rows, limits.prompt_logit_rows);
  if (c.pause > run.before) run.rows = std::min(run.rows, c.pause - run.before);
  run.draws = run.rows == rest;
  run.logits = all_logits ? run.rows : run.draws ? 1 : 0;
  return run;
}

}  // namespace

std::vector<PlannedRun> plan_step(std::span<Choice* const> running, const SequenceMemory& memory,
                                  const StepLimits& limits) {
  std::vector<PlannedRun> plan;
  auto ready = [](const Choice& c) { return c.owner->to_encode.empty(); };
  auto decodes = [&](const Choice& c) {
    return ready(c) && c.output_tokens() > 0 && unfed(c, memory) <= limits.catch_up;
  };
  int room = limits.rows, owed = 0;  // owed: rows of choices that decode and aren't planned yet
  for (const Choice* c : running)
    if (decodes(*c)) owed += unfed(*c, memory);
  for (Choice* c : running)
    if (decodes(*c)) {
      const int rest = unfed(*c, memory);
      owed -= rest;
      plan.push_back(decode(*c, memory, limits, std::max(rest, room - owed)));
      room -= plan.back().rows;
    }
  for (Choice* c : running)
    if (ready(*c) && !decodes(*c) && room > 0) {
      plan.push_back(prefill(*c, memory, limits, room));
      room -= plan.back().rows;
    }
  return plan;
}

}  // namespace lathe
