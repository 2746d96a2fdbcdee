#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/service.h"
#include "text/stream_decoder.h"

namespace lathe::testing {

// What a scripted model answers.
struct ScriptedReply {
  std::string when;  // the reply whose `when` stands latest in the prompt is taken; "" stands in every prompt
  std::string text;
  std::optional<Failure> failure;  // instead of an end
  int fail_after = 0;              // tokens
  bool endless = false;            // the text again and again, until max_tokens
};

struct Script {
  std::vector<ScriptedReply> replies;
  uint64_t seed = 1;    // of how tokens are grouped into steps
  int most_tokens = 3;  // of a step
  double step_seconds = 0;
  int max_context = 4096;
  int cached_tokens = 0;  // of every prompt
  int max_queue = 64;
  bool held = false;  // requests wait until release()
};

// A Service without a model: the demo model's tokenizer and template, replies from a script, everything else (stop
// strings, limits, cancelling, deadlines, draining, events from a thread of its own) as the real one does it.
class ScriptedService : public Service {
 public:
  explicit ScriptedService(Script script);
  ~ScriptedService() override;

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate* chat_template() const override { return &chat_; }
  const glm5_next::Config& config() const override { return config_; }
  const ServiceOptions& options() const override { return options_; }
  SampleSettings default_sampling() const override { return {.temperature = 1, .top_p = 0.95f}; }
  int max_context() const override { return script_.max_context; }
  Result<std::vector<int32_t>> expand(std::vector<int32_t> ids, const Media& media) const override;
  std::optional<Refusal> would_refuse(int64_t prompt_tokens, int choices) const override;
  std::optional<Refusal> submit(Request request, EventSink sink) override;
  bool cancel(const std::string& id) override;
  ServiceStats stats() const override;
  double stalled_seconds() const override { return stalled_; }
  bool failed() const override { return failed_; }
  bool draining() const override { return draining_; }
  void drain(double seconds) override;
  void undrain() override { draining_ = false; }
  void flush_cache() override { ++flushes_; }

  // For tests.
  void release();
  void fail_engine();
  void stall(double seconds) { stalled_ = seconds; }
  int flushes() const { return flushes_; }
  int in_flight() const;
  std::vector<Request> seen() const;  // all that were submitted

 private:
  std::optional<Refusal> refusal() const;
  struct Choice {
    std::vector<int32_t> tokens;  // what it will say
    std::string text;             // and where that ends
    FinishReason finish = FinishReason::kStop;
    std::string stopped_by;
    size_t told_tokens = 0, told_bytes = 0;
    StreamDecoder decoder;
    size_t decoded = 0;  // bytes of the whole characters among the told tokens
    bool done = false;
  };
  struct Job {
    Request request;
    EventSink sink;
    std::vector<Choice> choices;
    std::optional<Failure> failure;
    int fail_after = 0;
    Usage usage;
    bool started = false, cancelled = false;
  };

  Job make_job(Request request, EventSink sink);
  Choice make_choice(const Request& request, const ScriptedReply& reply) const;
  bool step(Job& job);  // false: it has ended
  void loop();
  void fail(Job& job, Failure failure);

  const Script script_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  glm5_next::Config config_;
  ServiceOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Job> jobs_;
  std::vector<Request> seen_;
  std::mt19937_64 random_;
  bool held_, stop_ = false;
  std::atomic<bool> failed_{false}, draining_{false};
  std::atomic<double> stalled_{0};
  std::atomic<int> flushes_{0};
  std::thread thread_;
};

}  // namespace lathe::testing
