#pragma once

#include <span>
#include <vector>

#include "engine/choice.h"

namespace lathe {

// What a pass does for one choice: feeds its next tokens, and drafts after the last known one.
struct PlannedRun {
  Choice* choice = nullptr;
  int before = 0;      // positions in memory
  int rows = 0;        // tokens fed, drafts included
  int drafts = 0;      // of them
  bool draws = false;  // the last known token is among them: the next is drawn
  bool in_ring = false;
  int logits = 0;  // rows at the end whose logits are wanted
  // The loop's, in the pass:
  int first_draw = -1;   // its first drawn row
  int kept = 0;          // rows that count afterwards
  SequenceId twin = -1;  // `strict`: the sequence as it was before drafts are verified
};

struct StepLimits {
  int rows = 2048;             // of a pass
  int prompt_logit_rows = 64;  // of a prompt whose log probabilities are wanted, in one pass
  int catch_up = 1;            // a choice with so few tokens to feed decodes; others prefill
  bool ring = false;           // decode by replay ring
};

// Rows of one pass, `running` in order of importance. First every choice that decodes, whole, with its drafts where the
// budget allows it; then prompts, in pieces, up to the budget.
std::vector<PlannedRun> plan_step(std::span<Choice* const> running, const SequenceMemory& memory,
                                  const StepLimits& limits);

}  // namespace lathe
