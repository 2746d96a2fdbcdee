#pragma once

#include <optional>

#include "feedback/case_memory.h"
#include "feedback/ceilings.h"
#include "feedback/measurement_source.h"
#include "feedback/op_candidate.h"

// One operator case as the supervisor holds it: inputs in shared memory, fresh in every window; the clock; the oracle
// and the roof. Candidates come, are measured and judged against all this, and go.
//
//   window    every copy of the case once, in a new order, cold, timed by our clock without the time in which others
//             had the cores (the kernel's count); of slow candidates as many as time allows, drawn anew.
//             Before it inputs are changed here and there, so that no result of an earlier call is right any more, and
//             outputs are poisoned.
//   samples   one copy of one window, chosen by a stream that the candidate can't see, and one after the last window,
//             are kept as they were before and after the call, and checked against the oracle: whole or by rows.
//   refused   a result below the machine's own floor; work that goes on after "done", or begins before it was asked
//             for; more cores than were given; clocks that disagree; another build or layout than expected.

namespace lathe {

struct TrialOptions {
  int threads = 1;
  double seconds = 0.25;  // of measured windows in a life; more only where a few calls take longer
  int fewest_windows = 5;
  int64_t rotation_bytes = 0;  // copies of a case together; 0: as bench does
  uint64_t secret = 1;
  bool timed = true;  // false: results alone count; no ceilings, no cold caches, no rules about conduct
};

struct TrialResult {
  std::string build_id, variant;
  bool applies = true;
  double median_us = 0;    // a call
  double error_ratio = 0;  // the worst of what was checked
  int windows = 0, calls = 0;
  std::vector<double> window_us;  // a call, by window
  std::optional<Life::Trouble> trouble;
};

class OpTrial {
 public:
  static Result<std::unique_ptr<OpTrial>> create(const AnyOp& op, int case_index, const TrialOptions& options);

  // One life: `command` is the candidate's command line; variant "" is its default. `thorough`: samples are checked
  // even where the oracle takes seconds. build_id "": any.
  Result<TrialResult> measure(const std::vector<std::string>& command, const std::string& variant, int threads,
                              const std::string& build_id, bool thorough);

  // One call of our own build's variant, or of its default where it hasn't that one: an estimate.
  Result<double> own_seconds(const std::string& variant);

  const CaseInfo& info() const { return op_.cases[case_index_]; }
  const AnyOp& op() const { return op_; }
  const Roof& roof() const { return roof_; }
  int slots() const { return slots_; }

 private:
  struct Sample {
    Image before, after;
  };
  struct Window {
    OpCandidate::Done done;
    int calls = 0;
    double idle_cpu_us = 0;  // that the candidate used since its last answer
    int idle_threads = 0;    // that it had before it was asked
  };

  OpTrial(const AnyOp& op, int case_index, const TrialOptions& options)
      : op_(op), case_index_(case_index), options_(options), secret_(options.secret), pool_(options.threads) {}

  Status prepare();
  void refresh_slot(int slot);
  // `calls` copies of the case.
  Result<Window> window(OpCandidate& candidate, int calls, Sample* sample);
  std::string fault_of(const Sample& sample, bool thorough, double& error_ratio);
  Result<Image> expected(const Sample& sample, AnyCase& call, int variant);
  void raise_roof(double wall_us);
  std::optional<Life::Trouble> conduct(const std::vector<Window>& windows, int threads, double wall_us) const;
  char* slot(int i) const { return memory_->data() + i * slot_bytes_; }

  const AnyOp& op_;
  const int case_index_;
  const TrialOptions options_;
  RandomStream secret_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::optional<CaseMemory> oracle_;  // the same case in our own memory
  std::unique_ptr<AnyCase> built_;
  Arena scratch_;
  std::vector<FieldView> fields_;
  Image pristine_;  // of the case: every life begins with copies of it
  std::optional<SharedMemory> memory_;
  std::unique_ptr<CeilingBench> ceilings_;
  Roof roof_;
  int64_t slot_bytes_ = 0, rotation_ = 0;
  int slots_ = 0;
  double idle_since_us_ = 0;
  uint64_t layout_ = 0;
};

}  // namespace lathe
