#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/service.h"
#include "serve/http.h"
#include "serve/reply.h"
#include "text/output_stream.h"

namespace lathe::serve {

// What is to be generated, and how it is told.
struct GenerationPlan {
  std::vector<Request> requests;  // one a prompt; all ids begin with the reply's
  Reply reply;                    // its choices are made by the generation
  std::unique_ptr<ReplyShape> shape;
  bool stream = false;
  bool parse = false;  // outputs hold reasoning and calls
  std::string tools;   // JSON, for parsing; "": none
  bool in_reasoning = false;
  bool parallel_calls = true;
  std::vector<Header> headers;  // of the reply
};

// How it went, for log and metrics.
struct GenerationEnd {
  int status = 200;
  std::string finish;  // "stop", "length", "tool_calls", or a failure's name
  Usage usage;
  int malformed_calls = 0;
  double seconds_to_first = -1;
};

ApiError error_of(Failure failure);
ApiError error_of(const Refusal& refusal);

// One reply from submitting to the last byte. Events come from the engine's thread and wait here until the connection
// takes them, so a slow client holds up nobody but itself.
class Generation : public HttpStream, public std::enable_shared_from_this<Generation> {
 public:
  Generation(Service& service, std::shared_ptr<Exchange> exchange, GenerationPlan plan,
             std::function<void(const GenerationEnd&)> on_end);

  void start();   // any thread, once
  void cancel();  // any thread; the engine then tells that it has ended
  Next pull(std::string& out, size_t room) override;
  std::string_view ping() const override { return plan_.shape->ping(); }

 private:
  struct Part {
    Usage usage;
    bool done = false;
  };
  struct News {
    size_t part;
    RequestEvent event;
  };

  void push(size_t part, RequestEvent&& event);
  void take(News& news, std::string& out);
  void take_piece(size_t part, OutputPiece& piece, std::string& out);
  void apply(size_t choice, const OutputDelta& delta, std::string& out);
  void open_block(size_t choice, Block::Kind kind, const std::string& name, std::string& out);
  void close_block(size_t choice, std::string& out);
  void finish_choice(size_t choice, std::string& out);
  void begin(std::string& out);
  void complete(std::string& out);
  void fail(const ApiError& error, const char* name, std::string& out);
  void end(int status, std::string finish);
  void sum_usage();
  void left();

  Service& service_;
  std::shared_ptr<Exchange> exchange_;
  GenerationPlan plan_;
  std::function<void(const GenerationEnd&)> on_end_;
  std::vector<std::string> ids_;
  std::vector<Part> parts_;
  std::vector<OutputStream> streams_;  // one a choice, where outputs are parsed
  std::vector<int> dropped_call_;      // by choice: index of the last call that parallel_calls lets go, or -1

  std::mutex mutex_;
  std::deque<News> arrived_;
  bool ended_ = false;  // under the mutex

  std::deque<News> taken_;
  bool begun_ = false;
  Next next_ = Next::kWait;
  std::chrono::steady_clock::time_point started_;
  GenerationEnd end_;
};

}  // namespace lathe::serve
