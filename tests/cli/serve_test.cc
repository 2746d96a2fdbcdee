#include <gtest/gtest.h>

#include "testing/http_client.h"
#include "testing/serve_process.h"

// lathe serve as it is started and stopped: the real engine, the demo model, signals and exit codes.
namespace lathe {
namespace {

using testing::ask;
using testing::event_data;
using testing::HttpAnswer;
using testing::ServeProcess;
using Json = nlohmann::json;

TEST(Serve, AnswersWithTheDemoModelAndDrains) {
  ServeProcess server({"--max-context", "2048", "--max-running", "4"});
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  Json body = {
      {"messages", {{{"role", "user"}, {"content", "What is 12 + 30?"}}}}, {"temperature", 0}, {"max_tokens", 48}};
  const HttpAnswer whole = ask(port, "POST", "/v1/chat/completions", body.dump());
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json reply = Json::parse(whole.body);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  std::string content, reasoning;
  Json usage;
  for (const std::string& data : event_data(ask(port, "POST", "/v1/chat/completions", body.dump()).body)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    if (chunk.contains("usage")) usage = chunk["usage"];
    for (const Json& c : chunk["choices"]) {
      content += c["delta"].value("content", "");
      reasoning += c["delta"].value("reasoning_content", "");
    }
  }
  const Json& message = reply["choices"][0]["message"];
  EXPECT_EQ(content, message["content"]);
  EXPECT_EQ(reasoning, message.value("reasoning_content", ""));
  EXPECT_EQ(usage["completion_tokens"], reply["usage"]["completion_tokens"]);
  EXPECT_EQ(usage["prompt_tokens"], reply["usage"]["prompt_tokens"]);
  const std::string metrics = ask(port, "GET", "/metrics").body;
  EXPECT_NE(metrics.find("lathe_requests_running"), std::string::npos);
  server.signal(SIGTERM);
  EXPECT_EQ(server.exit_code(), 0) << server.log();
}

TEST(Serve, ASecondSignalEndsAtOnce) {
  ServeProcess server({"--max-context", "8192"});
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 8192) << server.log();
  testing::HttpClient client(port);
  const std::string body = R"({"prompt": "Once", "ignore_eos": true, "stream": true})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  std::string got;
  while (got.find("data: ") == std::string::npos && !client.ended(0)) got += client.read_some(60);
  ASSERT_NE(got.find("data: "), std::string::npos) << got;
  server.signal(SIGTERM);
  ASSERT_EQ(server.logged("draining", "seconds"), 120);
  server.signal(SIGTERM);
  EXPECT_EQ(server.exit_code(), 0);
}

const std::string kStory =
    R"({"prompt": "Once", "ignore_eos": true, "temperature": 0, "stream": true, "max_tokens": 200})";

void send_story(testing::HttpClient& client) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(kStory.size()) + "\r\n\r\n" + kStory);
}

TEST(Serve, ADrainLetsRunningOnesFinishAndRefusesNewOnes) {
  ServeProcess server({"--threads", "1", "--max-context", "2048"});
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  testing::HttpClient client(port);
  send_story(client);
  std::string got;
  while (got.find("data: ") == std::string::npos && !client.ended(0)) got += client.read_some(60);
  ASSERT_NE(got.find("data: "), std::string::npos) << got;
  server.signal(SIGTERM);
  ASSERT_EQ(server.logged("draining", "seconds"), 120);
  const HttpAnswer refused = ask(port, "POST", "/v1/completions", kStory);
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(ask(port, "GET", "/health/ready").status, 503);
  EXPECT_EQ(ask(port, "GET", "/health/live").status, 200);
  for (std::string more; !(more = client.read_some(60)).empty();) got += more;
  EXPECT_NE(got.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(server.exit_code(), 0) << server.log();
}

TEST(Serve, KilledAndStartedAgainItHasLostWhatWasInFlightAndNothingElse) {
  std::string port = "0", before;
  {
    ServeProcess server({"--threads", "1", "--max-context", "2048"});
    port = std::to_string(server.logged("listening", "port").get<int>());
    ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
    Json body = Json::parse(kStory);
    body["stream"] = false, body["max_tokens"] = 24;
    before = Json::parse(ask(std::stoi(port), "POST", "/v1/completions", body.dump()).body)["choices"][0]["text"];
    testing::HttpClient client(std::stoi(port));
    send_story(client);
    std::string got;
    while (got.find("data: ") == std::string::npos && !client.ended(0)) got += client.read_some(60);
    ASSERT_NE(got.find("data: "), std::string::npos) << got;
    server.signal(SIGKILL);
    EXPECT_EQ(server.exit_code(), 128 + SIGKILL);
    for (std::string more; !(more = client.read_some(5)).empty();) got += more;
    EXPECT_EQ(got.find("[DONE]"), std::string::npos) << "a client must see that its stream was cut off";
    EXPECT_TRUE(client.ended(5));
  }
  ServeProcess server({"--threads", "1", "--max-context", "2048", "--port", port});
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  Json body = Json::parse(kStory);
  body["stream"] = false, body["max_tokens"] = 24;
  EXPECT_EQ(Json::parse(ask(std::stoi(port), "POST", "/v1/completions", body.dump()).body)["choices"][0]["text"],
            before);
}

TEST(Serve, WritesATraceOfStepsAndRequests) {
  const testing::ScratchFolder folder;
  const std::string file = folder.path("serve.json");
  ServeProcess server({"--threads", "1", "--max-context", "2048", "--trace", file});
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  ASSERT_EQ(ask(port, "POST", "/v1/completions", R"({"prompt": "Once", "max_tokens": 8, "ignore_eos": true})").status,
            200);
  server.signal(SIGTERM);
  ASSERT_EQ(server.exit_code(), 0) << server.log();
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  ASSERT_TRUE(Json::accept(text.str()));
  for (const char* name : {"\"decode step\"", "\"queued\"", "\"prefill\"", "\"decode\"", "\"draw\"", "\"emit\""})
    EXPECT_NE(text.str().find(name), std::string::npos) << name;
}

// With a token budget the answers are recomputed; the log tells of it.
TEST(Serve, AuditsItsAnswers) {
  ServeProcess server(
      {"--threads", "1", "--max-context", "2048", "--audit-tokens-per-minute", "1000000", "--log-level", "debug"});
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  for (int i = 0; i < 3; ++i) {
    const std::string body =
        R"({"prompt": "Once there was", "max_tokens": 16, "ignore_eos": true, "temperature": 0, "seed": )" +
        std::to_string(i) + "}";
    ASSERT_EQ(ask(port, "POST", "/v1/completions", body).status, 200);
  }
  EXPECT_GT(server.logged("audit_clean", "tokens"), 16);
  EXPECT_EQ(server.log().find("audit_finding"), std::string::npos) << server.log();
}

TEST(Serve, WhatCannotBeServedIsUsage) {
  EXPECT_EQ(ServeProcess({"--no-such-key", "1"}).exit_code(), 2);
  EXPECT_EQ(ServeProcess({"--max-queue", "0"}).exit_code(), 2);
  EXPECT_EQ(ServeProcess({"--host", "0.0.0.0"}).exit_code(), 2) << "others could reach it without a key";
  EXPECT_EQ(ServeProcess({"--model", "/no/such/folder"}).exit_code(), 2);
  EXPECT_EQ(ServeProcess({"--keys-file", "/no/such/file"}).exit_code(), 2);
}

}  // namespace
}  // namespace lathe
