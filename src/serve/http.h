#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

// HTTP/1.1 as an application sees it: requests come whole, replies go whole or as a stream that the connection pulls.
namespace lathe::serve {

struct Header {
  std::string name, value;
};

struct HttpRequest {
  std::string method, path, query;  // path and query as they were sent, without '?'
  std::vector<Header> headers;
  std::string body;
  bool admin = false;  // came in through the admin listener

  // Value of a header, "" if absent; names in any case. The first one if it is repeated.
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers;  // besides Content-Type, Content-Length, Connection and Date
  bool close = false;           // the connection ends with this reply
};

// A body in the making. Lives as long as its connection needs it.
class HttpStream {
 public:
  enum class Next {
    kWait,  // nothing more now; Exchange::wake() when there is
    kEnd,   // complete
    kCut,   // ended in an error: the connection closes behind what is in `out`
  };
  virtual ~HttpStream() = default;
  // Appends what is ready, not much more than `room` bytes. On the server's thread.
  virtual Next pull(std::string& out, size_t room) = 0;
  // Sent after a while of silence; "" if nothing is.
  virtual std::string_view ping() const { return ""; }
};

// One request and its reply. reply(), stream() and wake() may be called on any thread, the first two once between them.
class Exchange {
 public:
  virtual ~Exchange() = default;
  const HttpRequest& request() const { return request_; }
  HttpRequest& request() { return request_; }

  virtual void reply(HttpReply reply) = 0;
  // From now on pull() is called after every wake(), but nothing is sent until reply() or stream().
  virtual void listen(std::shared_ptr<HttpStream> stream) = 0;
  // Sends the head, then what the stream gives. `head`'s body is ignored.
  virtual void stream(HttpReply head, std::shared_ptr<HttpStream> stream) = 0;
  virtual void wake() = 0;

  // Headers of whatever reply comes; set before handle() returns.
  std::vector<Header> reply_headers;

  // The client left before the reply was complete.
  bool gone() const { return gone_; }
  // Called once, on the server's thread, when it leaves; at once if it has left.
  virtual void on_gone(std::function<void()> f) = 0;

 protected:
  HttpRequest request_;
  std::atomic<bool> gone_{false};
};

// What answers. Called on the server's thread: long work belongs elsewhere.
class HttpApp {
 public:
  virtual ~HttpApp() = default;
  // Looks at the head before the body is read; a reply ends the request there.
  virtual std::optional<HttpReply> refuse(const HttpRequest& head) = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The reply for what the connection itself found: a status of 400, 408, 413, 431 or 503.
  virtual HttpReply broken(int status, std::string_view message) = 0;
};

struct HttpLimits {
  int max_connections = 8192;
  double idle_seconds = 120;        // of a connection between requests
  double header_seconds = 10;       // from a request's first byte to the end of its head
  double body_idle_seconds = 60;    // between two pieces of a body
  double write_stall_seconds = 60;  // without the client taking a byte
  double ping_seconds = 15;         // of silence in a stream
  int64_t send_buffer_bytes = 64 << 10;
  int64_t all_bodies_bytes = int64_t{1} << 30;  // of requests being read or answered

  // Fixed.
  static constexpr int kHeaderBytes = 32 << 10;
  static constexpr int kHeaders = 100;
  static constexpr int64_t kBodyBytes = int64_t{64} << 20;
};

// One thread, the one that calls run(), serves all connections.
class HttpServer {
 public:
  HttpServer(const HttpLimits& limits, HttpApp& app);  // app outlives the server
  ~HttpServer();

  // Port 0: any free one, see port(). An error names the address.
  Status listen(const std::string& host, int port, bool admin = false);
  Status listen_unix(const std::string& path, bool admin = true);
  int port(bool admin = false) const;  // of the first listener of that kind

  void run();                          // until stop()
  void post(std::function<void()> f);  // any thread; f runs on the server's
  void stop();                         // any thread; open connections are closed
  void every(double seconds, std::function<void()> f);
  void on_signal(std::function<void(int)> f);  // SIGTERM and SIGINT
  void linger(double seconds);  // stops when all connections are idle, or after so long; new ones are refused
  int connections() const;      // any thread

  struct State;

 private:
  std::shared_ptr<State> state_;
};

const char* reason_phrase(int status);

}  // namespace lathe::serve
