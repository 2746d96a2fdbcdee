#include "feedback/talking_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace lathe {

Result<std::unique_ptr<TalkingChild>> TalkingChild::start(const std::vector<std::string>& command) {
  LATHE_CHECK(!command.empty());
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return exhausted("can't make a pipe: {}", std::strerror(errno));
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]), close(to[1]);
    return exhausted("can't make a pipe: {}", std::strerror(errno));
  }
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  auto child = std::unique_ptr<TalkingChild>(new TalkingChild);
  child->in_ = to[1], child->out_ = from[0];
  const int error = posix_spawnp(&child->pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]), close(from[1]);
  if (error == 0) return child;
  child->pid_ = -1;
  return unavailable("can't start {}: {}", command[0], std::strerror(error));
}

TalkingChild::~TalkingChild() {
  close(in_), close(out_);
  if (pid_ < 0) return;
  for (int i = 0; i < 500; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(1000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Status TalkingChild::say(const std::string& line) {
  const std::string text = line + "\n";
  struct sigaction ignore = {}, before;
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const ssize_t n = write(in_, text.data(), text.size());
  sigaction(SIGPIPE, &before, nullptr);
  return n == static_cast<ssize_t>(text.size()) ? Status::ok() : invalid("the other process no longer listens");
}

Result<std::string> TalkingChild::line(int timeout_ms) {
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string found = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return found;
    }
    pollfd wait{out_, POLLIN, 0};
    const int ready = poll(&wait, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return unavailable("no line within {} s", timeout_ms / 1000);
    char buffer[4096];
    const ssize_t n = read(out_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return invalid("the process ended before it had answered");
    unread_.append(buffer, n);
  }
}

}  // namespace lathe
