#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/pictures.h"
#include "engine/token_choice.h"

namespace lathe {

// What shall be generated: answers to several ends of one beginning, each to its own end. The beginning is computed
// once and forked.
struct GreedyJob {
  std::vector<int32_t> beginning;
  std::shared_ptr<const PictureFeatures> pictures;  // of the beginning; or null
  std::vector<std::vector<int32_t>> ends;           // not empty; each may be empty if the beginning isn't
  int max_tokens = 256;
};

struct GreedyAnswer {
  std::vector<int32_t> tokens;  // without the token that ended it
  bool stopped = false;         // by such a token; else max_tokens or the context was reached
  int verification_steps = 0;   // passes that gave these tokens
  int accepted = 0;             // tokens of those passes, the bonus token included
};

struct GreedyOptions {
  int drafts = 0;        // of the MTP block, verified by replay ring; 0: plain decode
  int step_rows = 2048;  // token rows a pass
  std::vector<int> stop_tokens;
  std::function<void(int done, int all)> progress;  // in ends
  StepObserver* observer = nullptr;                 // of the text tower's passes
};

// Greedy generation for many jobs at once: continuous batching over the executor's slots, chunked prefill beside
// decode, speculation. answers[job][end]. The executor must have been created with a replay ring if drafts > 0.
Result<std::vector<std::vector<GreedyAnswer>>> generate_greedy(Executor& executor, const std::vector<GreedyJob>& jobs,
                                                               const GreedyOptions& options);

}  // namespace lathe
