#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "feedback/child_process.h"
#include "testing/golden.h"
#include "testing/scratch_folder.h"

namespace lathe::testing {

// `lathe serve` with the demo model as a process of its own, on a free port unless the arguments name one.
class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> arguments) {
    const std::string binary = (std::filesystem::path(own_binary()).parent_path().parent_path() / "lathe").string();
    if (std::find(arguments.begin(), arguments.end(), "--port") == arguments.end())
      arguments.insert(arguments.end(), {"--port", "0"});
    arguments.insert(arguments.begin(), {binary, "serve", "--model", source_path("models/demo")});
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
  ServeProcess(const ServeProcess&) = delete;

  std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder_.path("log")).rdbuf();
    return text.str();
  }
  // A field of the first line of the log with that event; null after a minute.
  nlohmann::json logged(const std::string& event, const char* field) const {
    for (int i = 0; i < 1200; ++i) {
      std::istringstream lines(log());
      for (std::string line; std::getline(lines, line);) {
        const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
        if (entry.is_object() && entry.value("event", "") == event) return entry[field];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return nullptr;
  }
  pid_t pid() const { return pid_; }
  void signal(int s) { kill(pid_, s); }
  int exit_code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Bytes of memory that the process has touched.
  int64_t resident_bytes() const {
    std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
    int64_t pages = 0, resident = 0;
    statm >> pages >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }

 private:
  ScratchFolder folder_;
  pid_t pid_ = -1;
};

}  // namespace lathe::testing
