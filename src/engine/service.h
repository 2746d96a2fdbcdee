#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/audit.h"
#include "engine/executor.h"
#include "engine/request.h"
#include "lathe/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

// An engine for many users: one thread runs the step loop (take requests, plan a batch within the token budget, run it,
// sample, emit events); any thread submits and cancels. Knows no HTTP and no cluster.
namespace lathe {

// What a step of the loop did, and how long it took, from its look at what is new to its numbers' publication.
struct StepReport {
  int rows = 0, choices = 0;
  bool prefills = false;  // some of the rows are a prompt's
  double seconds = 0;
};

// What a service is made of. A test may put parts of its own in their place.
struct ServiceParts {
  std::function<decltype(make_device)> device = make_device;
  std::function<decltype(Executor::create)> executor = Executor::create;
};

struct ServiceOptions {
  EngineOptions engine;
  bool strict = false;       // a row's logits depend, bit for bit, on its prefix alone (serving.md 11)
  int max_running = 64;      // choices decoded at once
  int step_tokens = 2048;    // token rows of a step
  int64_t cache_tokens = 0;  // capacity of the pages; 0: from the machine's memory
  int checkpoints = 0;       // slots for the prefix cache; 0: from the machine's memory
  int checkpoint_interval = 1024;
  int checkpoint_least = 128;   // no checkpoint nearer than this to the one before
  int64_t host_tier_bytes = 0;  // 0: off
  int drafts = 3;               // at most; 0 or a model without MTP: no speculation. Adaptive below that
  // Admission (serving.md 7).
  int max_queue = 1024;
  double max_queue_capacities = 4;  // queued prompt tokens, in capacities of the pages
  double max_wait_seconds = 60;     // estimated
  AuditOptions audit;               // shadow verification
  // Not of a configuration: watchers of the passes, and what a test puts in.
  StepObserver* step_observer = nullptr;
  OpObserver* op_observer = nullptr;
  std::function<void(const StepReport&)> on_step;  // on the loop's thread
  ServiceParts parts;
};

// Why a request wasn't taken.
struct Refusal {
  enum class Why { kQueueFull, kQueueTokens, kWait, kDraining, kFailed, kDuplicateId, kTooLong };
  Why why;
  std::string message;
  int retry_after_seconds = 1;
};

// Called on the loop's thread, once a step at most: it must only hand the event on. After kDone or kFailed never again.
using EventSink = std::function<void(RequestEvent&&)>;

// Gauges and counters, as of the last step; names as in serving.md 12 without the prefix.
struct Metric {
  std::string name, labels;  // labels: `pool="latent",state="free"` or ""
  double value = 0;
  bool counter = false;
};
struct Histogram {
  std::string name;
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // one more than bounds
  double sum = 0;
};
struct ServiceStats {
  std::vector<Metric> metrics;
  std::vector<Histogram> histograms;
};

class Service {
 public:
  static Result<std::unique_ptr<Service>> start(const ServiceOptions& options);
  virtual ~Service() = default;

  // What requests are made with; safe on any thread.
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const ChatTemplate* chat_template() const = 0;  // null: the folder has none
  virtual const glm5_next::Config& config() const = 0;
  virtual const ServiceOptions& options() const = 0;
  virtual SampleSettings default_sampling() const = 0;  // of generation_config.json
  virtual int max_context() const = 0;
  // Puts media in place of their placeholders' spellings: see expand_placeholders.
  virtual Result<std::vector<int32_t>> expand(std::vector<int32_t> ids, const Media& media) const = 0;

  // Whether a request of so many prompt tokens and choices would be refused now; before it costs anything.
  virtual std::optional<Refusal> would_refuse(int64_t prompt_tokens, int choices) const = 0;
  // Taken into the queue, or refused at once. The sink may be called before submit returns.
  virtual std::optional<Refusal> submit(Request request, EventSink sink) = 0;
  // Ends within one step; the sink gets kFailed with kCancelled. False if no such request is in flight.
  virtual bool cancel(const std::string& id) = 0;

  virtual ServiceStats stats() const = 0;
  // Seconds since the loop last finished a step though there is work; 0 if it is idle.
  virtual double stalled_seconds() const = 0;
  virtual bool failed() const = 0;
  virtual bool draining() const = 0;
  // No new requests; returns when the last one has ended, or after `seconds` fails those that are left.
  virtual void drain(double seconds) = 0;
  virtual void undrain() = 0;
  virtual void flush_cache() = 0;
};

}  // namespace lathe
