// Bytes from anywhere on a connection of a real server whose application answers at once: it must answer or close, and
// serve the next connection.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "base/check.h"
#include "serve/http.h"

namespace {

using namespace lathe::serve;

class Echo : public HttpApp {
 public:
  std::optional<HttpReply> refuse(const HttpRequest& head) override {
    if (head.path == "/refuse") return HttpReply{.status = 404, .body = "{}"};
    return std::nullopt;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    LATHE_CHECK(exchange->request().headers.size() <= static_cast<size_t>(HttpLimits::kHeaders));
    exchange->reply({.body = "{\"bytes\": " + std::to_string(exchange->request().body.size()) + "}"});
  }
  HttpReply broken(int status, std::string_view) override { return {.status = status, .body = "{}"}; }
};

struct Server {
  Echo app;
  HttpServer http{HttpLimits{.idle_seconds = 1, .header_seconds = 1, .body_idle_seconds = 1, .write_stall_seconds = 1},
                  app};
  std::thread thread;
  Server() {
    LATHE_CHECK(http.listen("127.0.0.1", 0).is_ok());
    thread = std::thread([this] { http.run(); });
    thread.detach();  // lives as long as the fuzzer
  }
};

int connected(int port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LATHE_CHECK(connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server* const server = new Server;
  const int s = connected(server->http.port());
  (void)send(s, data, size, MSG_NOSIGNAL);
  shutdown(s, SHUT_WR);
  char reply[4096];
  bool first = true;
  for (ssize_t n; (n = recv(s, reply, sizeof reply, 0)) > 0; first = false)
    if (first && n >= 9) LATHE_CHECK(std::string_view(reply, 9) == "HTTP/1.1 ");
  close(s);
  return 0;
}
