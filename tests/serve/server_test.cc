#include "serve/server.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "testing/scratch_folder.h"
#include "testing/test_server.h"

// Keys, quotas, health, drain, cancelling, metrics.
namespace lathe::serve {
namespace {

using testing::event_data;
using testing::eventually;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::HttpHeaders;
using testing::kChatBody;
using testing::kChatPath;
using testing::kStreamBody;
using testing::post_text;
using testing::ScratchFolder;
using testing::Script;
using testing::talk;
using testing::TestServer;

Script held() {
  Script s = talk();
  s.held = true;
  return s;
}

std::string code_of(const HttpAnswer& a) { return Json::parse(a.body)["error"]["code"]; }

class Keys : public ::testing::Test {
 protected:
  Keys() {
    std::ofstream(folder_.path("keys.toml")) << R"(
[[key]]
name = "alice"
key = "alice-alice-alice"
priority = 2
cache_salt = "hers"
[[key]]
name = "bob"
key = "bob-bob-bob-bob-bob"
max_concurrent = 1
tokens_per_minute = 1000
[[key]]
name = "watcher"
key = "watcher-watcher-watcher"
metrics_only = true
)";
  }
  ServerConfig config() { return {.keys_file = folder_.path("keys.toml")}; }
  static HttpHeaders bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }
  ScratchFolder folder_;
  const HttpHeaders alice_ = bearer("alice-alice-alice"), bob_ = bearer("bob-bob-bob-bob-bob"),
                    watcher_ = bearer("watcher-watcher-watcher");
};

TEST_F(Keys, EveryRouteButLiveNeedsOne) {
  TestServer server(talk(), config());
  for (const Route& r : route_table()) {
    if (r.admin) continue;
    std::string path = r.path;
    if (const size_t hole = path.find("{id}"); hole != std::string::npos) path.replace(hole, 4, "demo");
    const HttpAnswer none = testing::ask(server.port(), r.method, path, r.api ? kChatBody : "");
    EXPECT_EQ(none.status, r.id == RouteId::kLive ? 200 : 401) << path;
    if (r.id == RouteId::kLive) continue;
    EXPECT_TRUE(none.headers.contains("www-authenticate"));
    for (const char* wrong : {"", "alice-alice-alicf", "alice-alice-alice-", "alice", "ALICE-ALICE-ALICE"})
      EXPECT_EQ(testing::ask(server.port(), r.method, path, r.api ? kChatBody : "", bearer(wrong)).status, 401)
          << path << wrong;
  }
  EXPECT_EQ(server.get("/no/such/route").status, 401) << "what there is, only keys learn";
  EXPECT_EQ(server.post(kChatPath, kChatBody, alice_).status, 200);
  EXPECT_EQ(server.post(kChatPath, kChatBody, {{"x-api-key", "alice-alice-alice"}}).status, 200);
  EXPECT_EQ(server.get("/version", {{"Authorization", "Basic " + encode_base64("any:alice-alice-alice")}}).status, 200)
      << "what a browser sends for the page";
  EXPECT_EQ(server.get("/metrics", watcher_).status, 200);
  EXPECT_EQ(server.get("/v1/models", watcher_).status, 403);
}

TEST_F(Keys, GoIntoTheRequest) {
  TestServer server(talk(), config());
  server.post(kChatPath, R"({"messages": [{"role": "user", "content": "Hi"}], "cache_salt": "other", "priority": 2})",
              alice_);
  const Request seen = server.service().seen()[0];
  EXPECT_EQ(seen.user, "alice");
  EXPECT_EQ(seen.cache_salt, "hers") << "the operator's wins";
  EXPECT_EQ(seen.priority, 2);
  const HttpAnswer too_high =
      server.post(kChatPath, R"({"messages": [{"role": "user", "content": "Hi"}], "priority": 3})", alice_);
  EXPECT_EQ(too_high.status, 403);
  EXPECT_EQ(
      server.post(kChatPath, R"({"messages": [{"role": "user", "content": "Hi"}], "priority": -10})", bob_).status,
      200);
}

TEST_F(Keys, QuotasGive429) {
  TestServer server(held(), config());
  HttpClient first(server.port());
  first.send(post_text(kChatPath, kChatBody, "Authorization: Bearer bob-bob-bob-bob-bob\r\n"));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  const HttpAnswer second = server.post(kChatPath, kChatBody, bob_);
  EXPECT_EQ(second.status, 429);
  EXPECT_TRUE(second.headers.contains("retry-after"));
  EXPECT_EQ(code_of(second), "rate_limit_exceeded");
  server.service().release();
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(server.post(kChatPath, kChatBody, bob_).status, 200);
}

TEST_F(Keys, TokensOfAMinute) {
  Script script = talk("word ");
  script.replies[0].endless = true;
  TestServer server(script, config());
  EXPECT_EQ(
      server.post(kChatPath, R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3000})", bob_).status,
      200);
  const HttpAnswer broke = server.post(kChatPath, kChatBody, bob_);
  EXPECT_EQ(broke.status, 429);
  EXPECT_GT(std::stoi(broke.headers.at("retry-after")), 60) << "2000 tokens of debt at 1000 a minute";
  EXPECT_EQ(server.post(kChatPath, kChatBody.substr(0, kChatBody.size() - 1) + ", \"max_tokens\": 5}", alice_).status,
            200);
}

TEST_F(Keys, OnlyTheSameKeyCancels) {
  TestServer server(held(), config());
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kChatBody, "Authorization: Bearer alice-alice-alice\r\nX-Request-Id: mine\r\n"));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  EXPECT_EQ(server.post("/v1/requests/mine/cancel", "", bob_).status, 404);
  EXPECT_EQ(server.post("/v1/requests/other/cancel", "", alice_).status, 404);
  EXPECT_EQ(server.service().in_flight(), 1);
  EXPECT_EQ(server.post("/v1/requests/mine/cancel", "", alice_).status, 200);
  EXPECT_EQ(client.read().status, 499);
  EXPECT_EQ(server.service().in_flight(), 0);
  EXPECT_EQ(server.post("/v1/requests/mine/cancel", "", alice_).status, 200) << "repeatable";
}

TEST(KeyFile, ErrorsNameTheField) {
  auto error = [](const char* toml) { return ApiKeys::parse(toml, "keys.toml").status().message(); };
  EXPECT_NE(error("").find("no [[key]]"), std::string::npos);
  EXPECT_NE(error("[[key]]\nname='a'").find("key of 'a' must have"), std::string::npos);
  EXPECT_NE(error("[[key]]\nkey='aaaaaaaaaaaaaaaa'").find("name is missing"), std::string::npos);
  EXPECT_NE(error("[[key]]\nname='a'\nkey='aaaaaaaaaaaaaaaa'\ncolour=1").find("colour"), std::string::npos);
  EXPECT_NE(error("[[key]]\nname='a'\nkey='aaaaaaaaaaaaaaaa'\npriority=11").find("priority"), std::string::npos);
  EXPECT_NE(error("[[key]]\nname='a'\nkey='aaaaaaaaaaaaaaaa'\n[[key]]\nname='a'\nkey='baaaaaaaaaaaaaaa'").find("twice"),
            std::string::npos);
  EXPECT_NE(error("[[key]]\nname='a'\nkey='aaaaaaa aaaaaaaaaa'").find("printable"), std::string::npos);
  EXPECT_NE(error("keys = 1").find("keys"), std::string::npos);
  EXPECT_NE(error("[[key").find("keys.toml:1"), std::string::npos);
}

TEST(Server, CancelByReplyIdEndsAStream) {
  Script script = talk("word ");
  script.replies[0].endless = true;
  script.step_seconds = 0.002;
  script.max_context = 100000;
  TestServer server(script);
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kStreamBody));
  std::string got;
  while (got.find("chatcmpl-") == std::string::npos) got += client.read_some(30);
  const size_t at = got.find("chatcmpl-");
  EXPECT_EQ(server.post("/v1/requests/" + got.substr(at, 33) + "/cancel", "").status, 200);
  while (got.find("\"cancelled\"") == std::string::npos) {
    const std::string more = client.read_some(30);
    ASSERT_NE(more, "");
    got += more;
  }
  EXPECT_EQ(got.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(client.ended(30));
}

TEST(Server, LoadsDrainsAndUndrains) {
  TestServer server({}, {}, /*attached=*/false);
  EXPECT_EQ(server.get("/health/live").status, 200);
  EXPECT_EQ(server.get("/health/ready").status, 503);
  const HttpAnswer loading = server.post(kChatPath, kChatBody);
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(code_of(loading), "loading");
  EXPECT_TRUE(loading.headers.contains("retry-after"));
  server.attach(held());
  EXPECT_EQ(server.get("/health/ready").status, 200);
  EXPECT_EQ(server.get("/health").status, 200);
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kStreamBody));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  server.server().drain();
  ASSERT_TRUE(eventually([&] { return server.get("/health/ready").status == 503; }));
  EXPECT_EQ(server.get("/health/live").status, 200);
  EXPECT_EQ(code_of(server.post(kChatPath, kChatBody)), "draining");
  server.service().release();
  std::string got;
  while (got.find("[DONE]") == std::string::npos) got += client.read_some(30);
  EXPECT_EQ(server.wait(), ServerEnd::kDrained);
}

TEST(Server, ADrainThatTakesTooLongEndsInErrorFrames) {
  TestServer server(held(), {.drain_seconds = 0.2});
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kStreamBody));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  server.server().drain();
  const HttpAnswer a = client.read();
  EXPECT_EQ(Json::parse(event_data(a.body).back())["error"]["code"], "draining");
  EXPECT_EQ(server.wait(), ServerEnd::kDrained);
}

TEST(Server, AFailedEngineIsToldAndEndsTheServer) {
  TestServer server(held());
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kStreamBody));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  server.service().fail_engine();
  const HttpAnswer a = client.read();
  EXPECT_EQ(Json::parse(event_data(a.body).back())["error"]["code"], "engine_failed");
  EXPECT_EQ(server.wait(), ServerEnd::kEngineFailed);
}

TEST(Server, LiveTurnsWhenTheEngineStalls) {
  TestServer server(talk());
  server.service().stall(31);
  EXPECT_EQ(server.get("/health/live").status, 503);
  server.service().stall(29);
  EXPECT_EQ(server.get("/health/live").status, 200);
}

TEST(Server, AFullQueueIs503WithRetryAfter) {
  Script script = held();
  script.max_queue = 1;
  TestServer server(script);
  HttpClient client(server.port());
  client.send(post_text(kChatPath, kChatBody));
  ASSERT_TRUE(eventually([&] { return server.service().in_flight() == 1; }));
  const HttpAnswer a = server.post(kChatPath, kChatBody);
  EXPECT_EQ(a.status, 503);
  EXPECT_EQ(a.headers.at("retry-after"), "2");
  EXPECT_EQ(code_of(a), "overloaded");
  EXPECT_NE(server.get("/metrics")
                .body.find("lathe_requests_rejected_total{model=\"demo\",role=\"all\",why=\"overloaded\"} 1"),
            std::string::npos);
}

TEST(Server, AdminListener) {
  TestServer server(talk(), {.admin = "127.0.0.1:0"});
  const int port = server.server().port(/*admin=*/true);
  EXPECT_EQ(testing::ask(port, "GET", "/admin/drain").status, 405) << "state never changes on GET";
  EXPECT_EQ(testing::ask(port, "POST", "/admin/cache/flush").status, 200);
  EXPECT_EQ(server.service().flushes(), 1);
  EXPECT_EQ(testing::ask(port, "POST", "/admin/log-level/error").status, 200);
  EXPECT_EQ(testing::ask(port, "POST", "/admin/log-level/loud").status, 400);
  EXPECT_EQ(testing::ask(port, "GET", "/metrics").status, 200);
  EXPECT_EQ(testing::ask(port, "POST", "/admin/drain").status, 200);
  EXPECT_EQ(server.wait(), ServerEnd::kDrained);
}

TEST(Server, MetricsAreWellFormedAndAgreeWithReplies) {
  TestServer server(talk(), {.vllm_metrics = true});
  for (int i = 0; i < 3; ++i) server.post(kChatPath, kChatBody);
  server.post(kChatPath, "{");
  const HttpAnswer a = server.get("/metrics");
  EXPECT_EQ(a.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(a.body.find("lathe_requests_total{model=\"demo\",role=\"all\",route=\"/v1/chat/"
                        "completions\",code=\"200\",finish=\"stop\"} 3\n"),
            std::string::npos)
      << a.body;
  EXPECT_NE(a.body.find("code=\"400\""), std::string::npos);
  EXPECT_NE(a.body.find("vllm:num_requests_running"), std::string::npos);
  EXPECT_NE(a.body.find("lathe_pages{model=\"demo\",role=\"all\",pool=\"latent\",state=\"free\"} 10\n"),
            std::string::npos);
  EXPECT_NE(a.body.find("lathe_time_to_first_token_seconds_count{model=\"demo\",role=\"all\"} 3\n"), std::string::npos);
  std::set<std::string> types;
  std::string block;
  std::istringstream lines(a.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      block = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(types.insert(block).second) << block << " is told in two places";
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(block)) << line;
    }
  }
}

TEST(Server, VersionTellsNoPaths) {
  TestServer server(talk());
  const Json v = Json::parse(server.get("/version").body);
  EXPECT_EQ(v["mode"], "fast");
  EXPECT_EQ(v["model"], "demo");
  EXPECT_EQ(server.get("/version").body.find("/"), std::string::npos);
  EXPECT_EQ(Json::parse(server.post(kChatPath, kChatBody).body)["system_fingerprint"], "lathe-0123456789abcdef-fast");
}

}  // namespace
}  // namespace lathe::serve
