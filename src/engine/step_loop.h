#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/choice.h"
#include "engine/engine_stats.h"
#include "engine/fair_queue.h"
#include "engine/intake.h"
#include "engine/mtp_drafter.h"
#include "engine/sampler.h"
#include "engine/step_plan.h"

namespace lathe {

// What the step loop works with; all of it outlives the loop.
struct StepLoopParts {
  const ServiceOptions& options;
  const glm5_next::Config& config;
  const Tokenizer& tokenizer;
  Executor& executor;
  PrefixCache* cache = nullptr;        // null: none
  PictureEncoder* pictures = nullptr;  // null: the model takes none
  Intake& intake;
  int max_context = 0;
};

// The one loop: take new requests, plan a batch within the token budget, run it, sample, emit events. A choice is its
// tokens; whatever of them isn't in memory is fed, so that a prompt, the next token, accepted drafts and a preempted
// choice's whole past are the same to it.
class StepLoop {
 public:
  explicit StepLoop(const StepLoopParts& parts);
  // Until the intake says stop. One thread.
  void run();

  // -- any thread
  EngineNumbers numbers() const;
  double stalled_seconds() const;

 private:
  // One step; false if there was nothing to do.
  bool step();
  void report(SteadyTime begin);

  // Runs what is one request's own. Whatever it throws ends that request, and no other.
  template <class F>
  void guard(ActiveRequest& r, F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      broke(r, e);
    }
  }
  void broke(ActiveRequest& r, const std::exception& e);
  Status guarded_pass();

  // -- who comes, who goes
  void take_news();
  void enter(ActiveRequest& r, const char* phase);
  void accept(Intake::Submission submission);
  void cancel(const std::string& id, Failure why, const char* message);
  void expire(SteadyTime now);
  void fail_all(Failure why, const std::string& message);
  void fail(ActiveRequest& r, Failure why, const std::string& message);
  void leave(ActiveRequest& r);
  EngineNumbers::Phase phase(const ActiveRequest& r) const;

  // -- who runs
  void admit(SteadyTime now);
  bool admit_parked(SteadyTime now);
  bool admit_waiting(SteadyTime now);
  bool preempt_for(const ActiveRequest& waiting);
  int slots_in_use() const;
  bool has_room(int choices, int tokens);
  bool fits(int choices, int tokens);
  int pages_for(int tokens) const;
  void start(ActiveRequest& r, SteadyTime now);
  bool resume(Choice& c);
  Result<SequenceId> open(Choice& c);
  Status want_pictures(ActiveRequest& r, int from);
  void encode_one();
  bool make_room(int pages);
  void put_in_order(Choice& c);
  void park(Choice& c);
  void release(Choice& c);

  // -- the pass
  void reserve();
  bool reserve(PlannedRun& p);
  Status pass();
  void split_off_twins();
  Status settle(PlannedRun& p);
  Status draft();
  bool request_draft(const PlannedRun& p, std::vector<DraftRequest>& requests);
  void set_pauses();
  void keep();
  Status keep_ended(Choice& c);
  void watch(Choice& c);
  void offer_to_audit(const ActiveRequest& r);
  bool audit();
  void measure_rate(double seconds);
  Result<Rows> gather_features(std::vector<Run>& runs);
  Run run_of(const PlannedRun& p) const;
  void list_draws();
  void list_draws_of(PlannedRun& p, int64_t first_logit_row);
  void take(PlannedRun& p, std::span<const Drawn> drawn);
  int verify(PlannedRun& p, std::span<const Drawn> drawn);
  void begin_output(PlannedRun& p, std::span<const Drawn> drawn);
  bool refuse_draw(ActiveRequest& r, int draw, const Drawn& drawn);
  void take_prompt_logprobs(PlannedRun& p, std::span<const Drawn> drawn);
  void fork_choices();
  Status retire();
  void emit();
  void tell(ActiveRequest& r);
  void publish();

  const ServiceOptions& options_;
  const glm5_next::Config& config_;
  const Tokenizer& tokenizer_;
  Executor& executor_;
  SequenceMemory& memory_;
  PrefixCache* const cache_;
  PictureEncoder* const pictures_;
  Intake& intake_;
  const int max_context_;
  ControlTokens control_;
  Sampler sampler_;
  StepLimits limits_;
  const bool drafting_;
  SpeculationControl speculation_;
  MtpDrafter drafter_;
  ShadowAudit audit_;
  Recorder* const probes_;  // null: off
  int64_t accepted_ = 0;

  std::unordered_map<std::string, std::unique_ptr<ActiveRequest>> active_;
  std::vector<std::unique_ptr<ActiveRequest>> ended_;  // until the step is over
  std::multimap<SteadyTime, std::string> deadlines_;
  FairQueue<ActiveRequest*> queue_;
  std::vector<Choice*> running_, parked_;  // in order of importance

  std::vector<PlannedRun> plan_;
  std::vector<DrawRow> draws_;
  RowStore store_, draft_store_;
  std::deque<Lookahead> ahead_;  // of the draft requests
  std::vector<ActiveRequest*> to_fork_;
  DeviceBuffer features_;
  bool stopping_ = false;
  int prompt_rows_ = 0;  // of this step
  StepReport report_;    // likewise; rows 0: no pass was run
  double rate_rows_ = 0, rate_seconds_ = 0;

  EngineNumbers now_;
  mutable std::mutex numbers_mutex_;
  EngineNumbers published_;
  std::atomic<int64_t> busy_since_{0};  // steady nanoseconds; 0: idle
};

}  // namespace lathe
