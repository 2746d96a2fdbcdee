#include "feedback/child_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

extern char** environ;

namespace lathe {

namespace {

std::string read_all(int fd) {
  std::string text;
  char buffer[65536];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(buffer, n);
  }
  return text;
}

}  // namespace

Result<ChildOutput> run_child(const std::vector<std::string>& command) {
  LATHE_CHECK(!command.empty());
  int ends[2];
  if (pipe(ends) != 0) return exhausted("can't make a pipe: {}", std::strerror(errno));
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ChildOutput output;
  if (error == 0) output.stdout_text = read_all(ends[0]);
  close(ends[0]);
  if (error != 0) return unavailable("can't start {}: {}", command[0], std::strerror(error));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::string own_binary() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace lathe
