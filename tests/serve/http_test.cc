#include "serve/http.h"

#include <gtest/gtest.h>

#include "serve/json.h"
#include "testing/test_server.h"

// Connections: framing, limits, slow and rude clients.
namespace lathe::serve {
namespace {

using testing::ask;
using testing::event_data;
using testing::eventually;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::kChatBody;
using testing::kStreamBody;
using testing::post_text;
using testing::Script;
using testing::talk;
using testing::TestServer;

const char* kHost = "Host: localhost\r\n";
TEST(Http, KeepsConnectionsAndServesPipelinedRequests) {
  TestServer server(talk());
  HttpClient client(server.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.ask("GET", "/health").status, 200);
  client.send(fmt::format("GET /version HTTP/1.1\r\n{0}\r\nGET /v1/models HTTP/1.1\r\n{0}\r\n", kHost) +
              post_text("/v1/chat/completions", kChatBody) +
              fmt::format("GET /health/live HTTP/1.1\r\n{}Connection: close\r\n\r\n", kHost));
  EXPECT_NE(client.read().body.find("version"), std::string::npos);
  EXPECT_NE(client.read().body.find("max_model_len"), std::string::npos);
  EXPECT_NE(client.read().body.find("Hello"), std::string::npos);
  EXPECT_NE(client.read().body.find("live"), std::string::npos);
  EXPECT_TRUE(client.ended(30));
}

TEST(Http, MalformedRequestsGetAReplyAndNothingElseHappens) {
  TestServer server(talk());
  struct Bad {
    const char* text;
    int status;
  };
  const std::string many_headers = [] {
    std::string s = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 120; ++i) s += fmt::format("X-{}: 1\r\n", i);
    return s + "\r\n";
  }();
  const std::string long_header = "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(40000, 'a') + "\r\n\r\n";
  for (const Bad& bad : {Bad{"nonsense\r\n\r\n", 400},
                         {"GET\r\n\r\n", 400},
                         {"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400},
                         {"GET / HTTP/1.1\r\n\r\n", 400},
                         {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
                         {"GET / HTTP/1.1\r\nHost: localhost\r\nbroken header\r\n\r\n", 400},
                         {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: -1\r\n\r\n",
                          400},
                         {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: x\r\n\r\n",
                          400},
                         {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                          400},
                         {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                          400},
                         {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: 99999999999\r\n\r\n",
                          413},
                         {many_headers.c_str(), 431},
                         {long_header.c_str(), 431}}) {
    HttpClient client(server.port());
    client.send(bad.text);
    EXPECT_EQ(client.read().status, bad.status) << std::string(bad.text).substr(0, 120);
    EXPECT_TRUE(client.ended(30)) << std::string(bad.text).substr(0, 120);
  }
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_TRUE(server.service().seen().empty());
}

TEST(Http, ChunkedBodiesAndExpectAreRead) {
  TestServer server(talk());
  HttpClient client(server.port());
  client.send(fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\n{}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
      kHost));
  client.send(fmt::format("{:x}\r\n{}\r\n", 10, kChatBody.substr(0, 10)));
  client.send(fmt::format("{:x};ext=1\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", kChatBody.size() - 10, kChatBody.substr(10)));
  EXPECT_EQ(client.read().status, 200);
  client.send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\n{}Content-Type: application/json\r\nExpect: "
                  "100-continue\r\nContent-Length: {}\r\n\r\n",
                  kHost, kChatBody.size()));
  EXPECT_EQ(client.read_some(30), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(kChatBody);
  EXPECT_EQ(client.read().status, 200);
}

TEST(Http, RoutesAndMethods) {
  TestServer server(talk());
  HttpAnswer a = server.get("/no/such/route");
  EXPECT_EQ(a.status, 404);
  EXPECT_EQ(Json::parse(a.body)["error"]["code"], "not_found");
  a = server.get("/v1/chat/completions");
  EXPECT_EQ(a.status, 405);
  EXPECT_EQ(a.headers["allow"], "POST");
  EXPECT_EQ(ask(server.port(), "DELETE", "/v1/models").headers["allow"], "GET, HEAD");
  EXPECT_EQ(ask(server.port(), "OPTIONS", "/v1/models").status, 405);
  EXPECT_EQ(server.post("/admin/drain", "").status, 404) << "not on the public listener";
  EXPECT_EQ(server.get("/v1/models/demo").status, 200);
  EXPECT_EQ(server.get("/v1/models/other").status, 404);
  EXPECT_EQ(server.post("/v1/chat/completions", kChatBody, {{"Content-Type", "text/plain"}}).status, 415);
  EXPECT_EQ(
      server.post("/v1/chat/completions", kChatBody, {{"Content-Type", "application/json; charset=utf-8"}}).status,
      200);
  EXPECT_EQ(server.get("/openapi.json").status, 200);
  HttpClient client(server.port());
  client.send(fmt::format("HEAD /health HTTP/1.1\r\n{}\r\nGET /health HTTP/1.1\r\n{}\r\n", kHost, kHost));
  std::string both;
  while (both.find("\r\n\r\n{") == std::string::npos) both += client.read_some(30);
  EXPECT_EQ(both.find("{"), both.rfind("{\"status\""));
}

TEST(Http, NoCorsAndAHostCheckOnLoopback) {
  TestServer server(talk(), {.allowed_hosts = {"lathe.test"}});
  EXPECT_EQ(server.get("/v1/models", {{"Host", "evil.example"}}).status, 403);
  EXPECT_EQ(server.get("/v1/models", {{"Host", "evil.example:8000"}}).status, 403);
  for (const char* good : {"localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "lathe.test"})
    EXPECT_EQ(server.get("/v1/models", {{"Host", good}}).status, 200) << good;
  for (const auto& [name, value] : server.get("/v1/models", {{"Origin", "http://evil.example"}}).headers)
    EXPECT_FALSE(name.starts_with("access-control")) << name;
}

TEST(Http, RequestIdsComeBack) {
  TestServer server(talk());
  EXPECT_EQ(server.get("/version", {{"X-Request-Id", "mine-1"}}).headers["x-request-id"], "mine-1");
  EXPECT_TRUE(server.get("/version").headers["x-request-id"].starts_with("req_"));
  EXPECT_EQ(server.post("/v1/chat/completions", kStreamBody, {{"X-Request-Id", "mine-2"}}).headers["x-request-id"],
            "mine-2");
  EXPECT_EQ(server.post("/v1/chat/completions", "{", {{"X-Request-Id", "mine-3"}}).headers["x-request-id"], "mine-3");
  EXPECT_EQ(server.get("/version", {{"X-Request-Id", std::string(129, 'a')}}).status, 400);
}

TEST(Http, StreamHeadersAndOneFrameEach) {
  TestServer server(talk());
  const HttpAnswer a = server.post("/v1/chat/completions", kStreamBody,
                                   {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
  EXPECT_EQ(a.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(a.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(a.headers.at("x-accel-buffering"), "no");
  EXPECT_TRUE(a.body.ends_with("data: [DONE]\n\n"));
  for (size_t at = 0; at < a.body.size();) {
    const size_t end = a.body.find("\n\n", at);
    ASSERT_NE(end, std::string::npos);
    const std::string frame = a.body.substr(at, end - at);
    EXPECT_EQ(frame.find('\n'), std::string::npos);
    EXPECT_TRUE(frame.starts_with("data: "));
    at = end + 2;
  }
}

TEST(Http, OldClientsGetAStreamThatEndsWithTheConnection) {
  TestServer server(talk());
  HttpClient client(server.port());
  client.send(fmt::format(
      "POST /v1/chat/completions HTTP/1.0\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", kHost,
      kStreamBody.size(), kStreamBody));
  const HttpAnswer a = client.read();
  EXPECT_EQ(a.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(event_data(a.body).back(), "[DONE]");
}

TEST(Http, HeadersLeaveWhileTheRequestWaitsAndPingsFollow) {
  Script script = talk();
  script.held = true;
  TestServer server(script, {.ping_seconds = 0.05});
  HttpClient client(server.port());
  client.send(post_text("/v1/chat/completions", kStreamBody));
  std::string got;
  while (got.find(": ping\n\n") == std::string::npos) got += client.read_some(30);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK"));
  EXPECT_EQ(got.find("data:"), std::string::npos) << "nothing has started yet";
  server.service().release();
  while (got.find("[DONE]") == std::string::npos) got += client.read_some(30);
}

TEST(Http, ASlowHeadOrBodyIsCutOff) {
  TestServer server(talk(), {.idle_seconds = 0.2, .header_seconds = 0.2, .body_idle_seconds = 0.2});
  HttpClient head(server.port()), body(server.port()), idle(server.port());
  head.send("GET / HT");
  body.send(fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
      kHost));
  EXPECT_EQ(head.read().status, 408);
  EXPECT_EQ(body.read().status, 408);
  EXPECT_TRUE(head.ended(30));
  EXPECT_TRUE(body.ended(30));
  EXPECT_EQ(idle.read_some(30), "") << "an idle connection is closed without a word";
  EXPECT_TRUE(idle.ended(30));
}

// A drop a second keeps the read timers fresh, but a head has to be complete in its time.
TEST(Http, DrippingAHeadDoesNotHelp) {
  TestServer server(talk(), {.idle_seconds = 0.5, .header_seconds = 0.5});
  HttpClient client(server.port());
  bool open = true;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 600 && open; ++i) {
    open = client.send(i == 0 ? "GET / HTTP/1.1\r\nX: " : "a") && !client.ended(0.1);
  }
  EXPECT_FALSE(open);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
}

TEST(Http, AClientThatLeavesEndsItsRequest) {
  for (const std::string& body : {kChatBody, kStreamBody}) {
    Script script = talk("word ");
    script.replies[0].endless = true;
    script.step_seconds = 0.005;
    script.max_context = 100000;
    TestServer server(script);
    {
      HttpClient client(server.port());
      client.send(post_text("/v1/chat/completions", body));
      ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return server.service().in_flight() == 0; }));
    EXPECT_TRUE(
        eventually([&] { return server.get("/metrics").body.find("why=\"client_left\"} 1") != std::string::npos; }));
  }
}

TEST(Http, ALeavingClientEndsAWaitingRequestAndAllItsPrompts) {
  Script script = talk();
  script.held = true;
  TestServer server(script);
  {
    HttpClient client(server.port());
    client.send(post_text("/v1/completions", R"({"prompt": ["a", "b", "c"], "n": 2})"));
    ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 3; }));
  }
  EXPECT_TRUE(eventually([&] { return server.service().in_flight() == 0; }));
}

// Who doesn't read holds up nobody, and is cut off when it stalls for good.
TEST(Http, ASlowReaderPausesOnlyItself) {
  Script script = talk("some words that fill the buffers quickly ");
  script.replies[0].endless = true;
  script.max_context = 20000;
  script.most_tokens = 8;
  TestServer server(script, {.send_buffer_bytes = 4096, .write_stall_seconds = 0.5});
  HttpClient slow(server.port(), 2048);
  slow.send(post_text("/v1/chat/completions", kStreamBody));
  ASSERT_TRUE(eventually([&] { return server.service().seen().size() == 1; }));
  const HttpAnswer other = server.post(
      "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50, "stream": true})");
  EXPECT_EQ(event_data(other.body).back(), "[DONE]");
  EXPECT_TRUE(eventually([&] { return server.service().in_flight() == 0; }));
  EXPECT_TRUE(eventually([&] {
    return server.get("/metrics").body.find("why=\"client_left\"} 1") != std::string::npos;
  })) << "the stall ends its request";
}

TEST(Http, ASlowButSteadyReaderGetsEverything) {
  Script script = talk("some words that fill the buffers quickly ");
  script.replies[0].endless = true;
  script.max_context = 3000;
  script.most_tokens = 64;
  TestServer server(script, {.send_buffer_bytes = 2048, .write_stall_seconds = 20});
  HttpClient client(server.port(), 2048);
  client.send(post_text("/v1/chat/completions", kStreamBody));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 0 && !server.service().seen().empty(); }))
      << "the engine is done long before the client";
  const HttpAnswer a = client.read();
  EXPECT_TRUE(a.complete);
  EXPECT_EQ(event_data(a.body).back(), "[DONE]");
}

TEST(Http, ConnectionsAreLimited) {
  TestServer server(talk(), {.max_connections = 2});
  HttpClient a(server.port()), b(server.port());
  EXPECT_EQ(a.ask("GET", "/health/live").status, 200);
  EXPECT_EQ(b.ask("GET", "/health/live").status, 200);
  HttpClient c(server.port());
  EXPECT_TRUE(c.ended(30));
  a.close();
  EXPECT_TRUE(eventually([&] { return server.get("/health/live").status == 200; }));
}

TEST(Http, ManyStreamsAtOnce) {
  Script script = talk("one two three four five six");
  script.step_seconds = 0.002;
  script.max_queue = 1000;
  TestServer server(script);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send(post_text("/v1/chat/completions", kStreamBody));
  }
  for (auto& client : clients) {
    const HttpAnswer a = client->read();
    ASSERT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(event_data(a.body).back(), "[DONE]");
  }
}

}  // namespace
}  // namespace lathe::serve
