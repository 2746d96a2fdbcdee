#pragma once

#include <vector>

#include "engine/executor.h"
#include "engine/token_choice.h"

namespace lathe {

// What the MTP block shall do for one sequence: rows `first`, first + 1, ... of its own caches, each from the hidden
// row of that position and the token after it; then, if drafts are wanted, that many tokens chained from the last row.
struct DraftRequest {
  SequenceId sequence = -1;
  int first = 0;
  std::vector<int32_t> next_tokens;  // the token after each row's position
  std::vector<float> hidden;         // [rows, hidden] of the text tower, after its final norm
  bool wants_drafts = false;
  std::vector<int32_t> drafts;  // the answer
};

// Greedy drafts by the one MTP block of a model, chained: each draft's hidden row is the next one's input. Caches of
// drafted rows are provisional: the next request of the sequence writes them anew. Pages must be reserved up to the
// last drafted position.
class MtpDrafter {
 public:
  explicit MtpDrafter(Executor& executor) : executor_(executor), choice_(executor.tower().config().vocab) {}
  Status draft(std::vector<DraftRequest>& requests, int count);

 private:
  Status pass(std::vector<DraftRequest*>& requests);
  Executor& executor_;
  TokenChoice choice_;
};

}  // namespace lathe
