#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "feedback/child_process.h"
#include "testing/golden.h"
#include "testing/http_client.h"
#include "testing/scratch_folder.h"

// lathe serve as it is started and stopped: the real engine, the demo model, signals and exit codes.
namespace lathe {
namespace {

using testing::ask;
using testing::event_data;
using testing::HttpAnswer;
using Json = nlohmann::json;

class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> arguments) {
    const std::string binary = (std::filesystem::path(own_binary()).parent_path().parent_path() / "lathe").string();
    arguments.insert(arguments.begin(),
                     {binary, "serve", "--model", testing::source_path("models/demo"), "--port", "0"});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const std::string log = folder_.path("log");
    pid_ = fork();
    if (pid_ == 0) {
      const int file = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(file, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~ServeProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }

  std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder_.path("log")).rdbuf();
    return text.str();
  }
  // A field of the first line of the log with that event; null after a minute.
  Json logged(const std::string& event, const char* field) const {
    for (int i = 0; i < 1200; ++i) {
      std::istringstream lines(log());
      for (std::string line; std::getline(lines, line);) {
        const Json entry = Json::parse(line, nullptr, false);
        if (entry.is_object() && entry.value("event", "") == event) return entry[field];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return nullptr;
  }
  void signal(int s) { kill(pid_, s); }
  int exit_code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  testing::ScratchFolder folder_;
  pid_t pid_ = -1;
};

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
  while (got.find("data: ") == std::string::npos) got += client.read_some(60);
  server.signal(SIGTERM);
  ASSERT_EQ(server.logged("draining", "seconds"), 120);
  server.signal(SIGTERM);
  EXPECT_EQ(server.exit_code(), 0);
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
