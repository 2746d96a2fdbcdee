#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/request.h"
#include "engine/sampler.h"

// Shadow verification: a sample of finished answers is computed once more when the engine is idle, from scratch, alone
// and on plain variants, with the answer's own tokens forced. A token that this replay would hardly have given is told.
namespace lathe {

struct AuditSample {
  std::string id;
  std::vector<int32_t> tokens;  // prompt and answer
  int prompt = 0;
  float temperature = 0;
};

struct AuditFinding {
  std::string id;
  int position = 0;  // of the token that should not have come
  int32_t chosen = 0, best = 0;
  float below = 0;  // log probability of the best less that of the chosen
  int layer = -1;   // the first whose residual streams differ between the replay and the usual variants at that
                    // position; -1: none does, so the cause lies in memory, company or cuts
};

// Who is told; wired from outside. Called on the loop's thread.
class Auditor {
 public:
  virtual ~Auditor() = default;
  virtual void found(const AuditFinding& finding) = 0;
  virtual void clean(const std::string& id, int tokens) = 0;
};

struct AuditOptions {
  int tokens_per_minute = 0;   // budget: what doesn't fit isn't replayed; 0: off
  double share = 1;            // of answers, drawn at random, that are offered the budget
  Auditor* auditor = nullptr;  // who is told what is found
};

class ShadowAudit {
 public:
  ShadowAudit(Executor& executor, const AuditOptions& options);

  // Perhaps takes the answer for later. Answers with edited logits (penalties, biases, grammars) or pictures can't be
  // judged by the model's logits alone: don't offer them.
  void offer(AuditSample sample, SteadyTime now);
  bool has_work() const { return sample_.has_value(); }
  // A piece of a replay, short enough that a request which comes meanwhile hardly waits.
  Status work();
  uint64_t tokens() const { return tokens_; }
  uint64_t findings() const { return findings_; }

 private:
  Status step();
  Status judge(const glm5_next::StepOutput& out, int first, int rows);
  Result<int> first_differing_layer(int position);
  Result<std::vector<std::vector<float>>> streams_at(int position, const Choices& choices);
  void finish();

  Executor& executor_;
  const double per_second_, share_;
  Auditor* auditor_;
  std::minstd_rand random_{std::random_device()()};
  Sampler sampler_;
  Choices plain_;
  double allowance_ = 0;  // tokens that may be replayed now
  std::optional<SteadyTime> last_;
  std::optional<AuditSample> sample_;
  SequenceId sequence_ = -1;
  uint64_t tokens_ = 0, findings_ = 0;
};

}  // namespace lathe
