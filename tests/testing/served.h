#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/service.h"

namespace lathe::testing {

// What came of a request, gathered from its events.
struct Served {
  struct Output {
    std::string text, stopped_by;
    std::vector<OutputToken> tokens;
    std::optional<FinishReason> finish;
    std::vector<int32_t> ids() const {
      std::vector<int32_t> list;
      for (const OutputToken& t : tokens) list.push_back(t.token);
      return list;
    }
  };
  std::vector<Output> outputs;
  std::vector<OutputToken> prompt_logprobs;
  Usage usage;
  std::optional<Failure> failure;
  std::optional<Refusal> refusal;
  std::string message;
  int starts = 0, events = 0, ends = 0;  // ends: kDone and kFailed
};

// Submits requests and waits for them. Events after an end, or before a start, are counted as `disorder`.
class Client {
 public:
  explicit Client(Service& service) : service_(service) {}
  ~Client() { wait_all(); }

  void submit(Request request);
  // Waits for one, or all of them.
  Served wait(const std::string& id);
  void wait_all();
  Served run(Request request) {
    const std::string id = request.id;
    submit(std::move(request));
    return wait(id);
  }
  bool ended(const std::string& id) const;
  int disorder() const;
  size_t tokens_of(const std::string& id) const;  // that came so far, of all choices

 private:
  void take(const std::string& id, RequestEvent&& event);

  Service& service_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, Served> served_;
  int open_ = 0, disorder_ = 0;
};

}  // namespace lathe::testing
