#pragma once

#include <vector>

#include "engine/choice.h"
#include "engine/executor.h"
#include "engine/sampler.h"

namespace lathe {

// What the MTP block shall do for one sequence after a run of the text tower: fill its caches for the run's rows, then
// draft. Hidden rows come from the executor and from the sequence's memory.
struct DraftRequest {
  SequenceId sequence = -1;
  int before = 0;               // position before the run
  std::vector<int32_t> tokens;  // those of the run that count, and then the next one if it is known
  int wanted = 0;               // drafts after the last of the tokens, which must be the next one; 0: only fill
  Lookahead* ahead = nullptr;   // what drafts are drawn by, moved along them; null: the likeliest token
  std::vector<int32_t> drafts;  // the answer
};

// Drafts by the one MTP block of a model, chained: each draft's hidden row is the next one's input. A draft is drawn as
// its token will be, by the same draw at the same position: so it is right more often than the likeliest token would
// be. Caches of drafted rows are provisional: the next request of the sequence writes them anew. Pages must be free for
// the last drafted position. Every run of a sequence that shall draft later, or be kept in a prefix cache, must be
// followed by a request (`wanted` may be 0): a sequence with a gap in its MTP rows gets no drafts any more.
class MtpDrafter {
 public:
  explicit MtpDrafter(Executor& executor) : executor_(executor), sampler_(executor.tower().config().vocab) {}
  // Right after the run (and the accept()s) that the requests are about.
  Status draft(std::vector<DraftRequest>& requests);

 private:
  // One request on its way through the passes.
  struct Chain {
    DraftRequest* request;
    int first;                         // the next row to compute
    std::vector<int32_t> next_tokens;  // the token after each row's position
    std::vector<Rows> hidden;          // of those rows, in pieces
    bool wants_draft() const { return static_cast<int>(request->drafts.size()) < request->wanted; }
  };
  std::vector<Chain> begin(std::vector<DraftRequest>& requests) const;
  Status pass(std::vector<Chain>& chains);

  Executor& executor_;
  Sampler sampler_;
  std::vector<DrawRow> rows_;
  DeviceBuffer previous_;  // hidden rows, gathered
};

}  // namespace lathe
