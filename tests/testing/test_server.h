#pragma once

#include <memory>
#include <thread>

#include "lathe/server.h"
#include "serve/server.h"
#include "testing/golden.h"
#include "testing/http_client.h"
#include "testing/scripted_service.h"

namespace lathe::testing {

inline const char* const kChatPath = "/v1/chat/completions";
inline const std::string kChatBody = R"({"messages": [{"role": "user", "content": "Hi"}]})";
inline const std::string kStreamBody = R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})";

// A script that says one thing.
inline Script talk(const char* text = "a</think>Hello") { return {.replies = {{.when = "", .text = text}}}; }

// A request's bytes.
inline std::string post_text(const std::string& path, const std::string& body, const std::string& more = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path,
      more, body.size(), body);
}

// Waits until something holds; only a bug makes it take the whole minute.
template <class F>
bool eventually(const F& holds) {
  for (int i = 0; i < 6000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A server on a free loopback port over a scripted model.
class TestServer {
 public:
  explicit TestServer(Script script = {}, ServerConfig config = {}, bool attached = true) {
    config.model = source_file("models/demo");
    config.port = 0;
    config.log_level = "error";
    Result<std::unique_ptr<serve::Server>> server = serve::Server::create(config, {"0.0", "abc", "0123456789abcdef"});
    LATHE_CHECK(server.is_ok());
    server_ = std::move(server).value();
    if (attached) attach(std::move(script));
    thread_ = std::thread([this] { end_ = server_->run(); });
  }
  ~TestServer() {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }

  void attach(Script script) {
    auto service = std::make_unique<ScriptedService>(std::move(script));
    service_ = service.get();
    server_->attach(std::move(service));
  }
  int port() const { return server_->port(); }
  serve::Server& server() { return *server_; }
  ScriptedService& service() { return *service_; }
  ServerEnd wait() {
    thread_.join();
    return end_;
  }

  HttpAnswer get(const std::string& path, HttpHeaders headers = {}) const {
    return ask(port(), "GET", path, "", std::move(headers));
  }
  HttpAnswer post(const std::string& path, const std::string& body, HttpHeaders headers = {}) const {
    return ask(port(), "POST", path, body, std::move(headers));
  }

 private:
  std::unique_ptr<serve::Server> server_;
  ScriptedService* service_ = nullptr;
  std::thread thread_;
  ServerEnd end_ = ServerEnd::kDrained;
};

}  // namespace lathe::testing
