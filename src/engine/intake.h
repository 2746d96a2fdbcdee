#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/traced_mutex.h"
#include "engine/admission.h"

namespace lathe {

// Where any thread meets the step loop: what is new, what is to be cancelled, and who is in flight.
class Intake {
 public:
  explicit Intake(const AdmissionLimits& limits, Recorder* probes = nullptr)
      : limits_(limits), mutex_("intake", probes) {}

  struct Submission {
    Request request;
    EventSink sink;
    SteadyTime when;
  };
  struct News {
    std::vector<Submission> fresh;
    std::vector<std::string> cancelled;
    bool flush_cache = false;
    bool fail_all = false;  // the time to drain is over
    bool stop = false;
  };

  // -- any thread
  std::optional<Refusal> would_refuse(int64_t prompt_tokens, int choices) const;
  std::optional<Refusal> submit(Request request, EventSink sink);
  bool cancel(const std::string& id);
  void flush_cache();
  void set_draining(bool draining);
  bool draining() const;
  bool failed() const;
  // Returns when nothing is in flight; after `seconds` tells the loop to end what is left.
  void wait_until_idle(double seconds);
  // Requests that were refused so far, by Refusal::Why.
  static constexpr int kWhys = 7;
  std::array<uint64_t, kWhys> refused() const;
  void stop();

  // -- the loop
  News take();
  // Sleeps until there is news, or until then.
  void wait(std::optional<SteadyTime> until);
  void left_queue(int64_t prompt_tokens, bool started);
  void ended(const std::string& id);
  void set_rate(double tokens_per_second);
  void set_failed();
  int waiting() const;

 private:
  std::optional<Refusal> closed() const;
  std::optional<Refusal> try_submit(Request& request, EventSink& sink);
  bool any_news() const {
    return !news_.fresh.empty() || !news_.cancelled.empty() || news_.flush_cache || news_.fail_all || news_.stop;
  }

  const AdmissionLimits limits_;
  mutable TracedMutex mutex_;
  std::condition_variable_any news_came_, idle_;
  News news_;
  std::unordered_set<std::string> in_flight_;
  AdmissionLoad load() const;

  AdmissionLoad load_;
  std::optional<SteadyTime> last_start_;  // since when others have waited behind it
  std::array<uint64_t, kWhys> refused_{};
  bool draining_ = false, failed_ = false;
};

}  // namespace lathe
