#include "feedback/op_candidate.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "feedback/child_process.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAnswerTimeoutMs = 120'000;
constexpr int kCensusMs = 2;      // between two counts of a working candidate's threads
constexpr int kFirstFreeFd = 10;  // above the descriptors that a candidate gets

// What a candidate may know of our environment: nothing that steers results but the instruction set.
std::vector<std::string> candidate_environment() {
  std::vector<std::string> kept;
  for (const char* name : {"PATH", "LATHE_ISA", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
    if (const char* value = std::getenv(name)) kept.push_back(fmt::format("{}={}", name, value));
  return kept;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& t : texts) all.push_back(const_cast<char*>(t.c_str()));
  all.push_back(nullptr);
  return all;
}

// Of a thread: nanoseconds on a core, nanoseconds of waiting for one, and turns. 0 where the kernel doesn't tell.
double waited_for_core_us(const std::filesystem::path& schedstat) {
  std::ifstream file(schedstat);
  int64_t ran = 0, waited = 0;
  return file >> ran >> waited ? static_cast<double>(waited) / 1000 : 0;
}

double own_wait_us() { return waited_for_core_us("/proc/thread-self/schedstat"); }

Result<pid_t> spawn(const std::vector<std::string>& command, int socket, int memory) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  // Both lie above the numbers they get, so neither overwrites the other.
  posix_spawn_file_actions_adddup2(&actions, socket, kOpSocketFd);
  posix_spawn_file_actions_adddup2(&actions, memory, kOpMemoryFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kOpMemoryFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const std::vector<std::string> environment = candidate_environment();
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, command[0].c_str(), &actions, &attributes, pointers(command).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return unavailable("can't start {}: {}", command[0], std::strerror(error));
  return pid;
}

}  // namespace

Result<std::unique_ptr<OpCandidate>> OpCandidate::start(const std::vector<std::string>& command,
                                                        const SharedMemory& memory) {
  LATHE_CHECK(!command.empty());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return exhausted("can't make a pair of sockets: {}", std::strerror(errno));
  const int theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstFreeFd),
            shared = fcntl(memory.fd(), F_DUPFD_CLOEXEC, kFirstFreeFd);
  close(ends[1]);
  const Result<pid_t> pid = spawn(command, theirs, shared);
  close(theirs), close(shared);
  auto candidate = std::unique_ptr<OpCandidate>(new OpCandidate);
  candidate->socket_ = ends[0];
  if (!pid.is_ok()) return pid.status();
  candidate->pid_ = *pid;
  return candidate;
}

OpCandidate::~OpCandidate() {
  close(socket_);  // an honest server leaves when nobody asks any more
  if (pid_ < 0) return;
  for (int i = 0; i < 200; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(1000);
  }
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string OpCandidate::ending() {
  int status = 0;
  for (int i = 0; i < 1000 && waitpid(pid_, &status, WNOHANG) == 0; ++i) usleep(1000);
  pid_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("the candidate's process died of signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("the candidate's process ended with exit code {}", WEXITSTATUS(status));
}

// Counts threads while it waits, where `most_threads` is given.
Result<OpReply> OpCandidate::ask(const OpRequest& request, Watch* watch) {
  OpReply reply;
  LATHE_ASSIGN(const bool sent, send_packet(socket_, &request, sizeof request));
  if (!sent) return invalid("{}", ending());
  if (watch) {
    pollfd wait{socket_, POLLIN, 0};
    double before = own_wait_us();
    for (int waited = 0; waited < kAnswerTimeoutMs && poll(&wait, 1, kCensusMs) == 0; waited += kCensusMs) {
      watch->most_threads = std::max(watch->most_threads, threads());
      before = own_wait_us();
    }
    watch->late_us = own_wait_us() - before;
  }
  LATHE_ASSIGN(const bool answered, receive_packet(socket_, &reply, sizeof reply, kAnswerTimeoutMs));
  if (!answered) return invalid("{}", ending());
  if (reply.code == OpReply::kFailed) return invalid("the candidate says: {}", get_text(reply.message));
  return reply;
}

Result<OpCandidate::Loaded> OpCandidate::load(const Load& load) {
  OpRequest request;
  request.kind = OpRequest::kLoad;
  set_text(request.op, load.op), set_text(request.case_name, load.case_name), set_text(request.variant, load.variant);
  request.seed = load.seed, request.slots = load.slots, request.slot_bytes = load.slot_bytes,
  request.threads = threads_ = load.threads;
  LATHE_ASSIGN(const OpReply reply, ask(request));
  return Loaded{get_text(reply.build_id), get_text(reply.message), reply.code == OpReply::kDone, reply.layout};
}

Result<OpCandidate::Done> OpCandidate::run(const std::vector<uint8_t>& order, int64_t begin, int64_t rows) {
  LATHE_CHECK(order.size() <= kMostSlots);
  OpRequest request;
  request.kind = OpRequest::kRun;
  request.count = static_cast<int32_t>(order.size());
  std::copy(order.begin(), order.end(), request.order.begin());
  request.begin = begin, request.rows = rows;
  const double cpu = cpu_us(), waited = waited_us();
  const auto started = Clock::now();
  Watch watch;
  LATHE_ASSIGN(const OpReply reply, ask(request, &watch));
  const double wall = std::chrono::duration<double, std::micro>(Clock::now() - started).count();
  const double now = cpu_us(), used = now - cpu;
  // Never less than it computed on each of its threads.
  const double worked = std::max({wall - (waited_us() - waited) - watch.late_us, used / threads_, 0.01 * wall});
  return Done{wall, worked, static_cast<double>(reply.own_ns) / 1000, used, now, watch.most_threads};
}

double OpCandidate::cpu_us() const {
  clockid_t clock;
  timespec t{};
  if (pid_ < 0 || clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1000;
}

double OpCandidate::waited_us() const {
  std::error_code error;
  double longest = 0;
  for (auto it = std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid_), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error))
    longest = std::max(longest, waited_for_core_us(it->path() / "schedstat"));
  return longest;
}

int OpCandidate::threads() const {
  std::error_code error;
  int count = 0;
  for (auto it = std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid_), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error))
    ++count;
  return count;
}

Result<std::string> candidate_binary(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path binary = fs::is_directory(path, error) ? fs::path(path) / "lathe" : fs::path(path);
  if (!fs::is_regular_file(binary, error) || access(binary.c_str(), X_OK) != 0)
    return not_found("{}: no lathe binary there; name one, or a build folder that holds one", path);
  return binary.string();
}

Result<std::string> candidate_build_id(const std::string& binary) {
  LATHE_ASSIGN(const ChildOutput child, run_child({binary, "--identity"}));
  const nlohmann::json j = nlohmann::json::parse(child.stdout_text, nullptr, false);
  if (child.exit_code != 0 || !j.is_object() || !j.contains("build_id") || !j["build_id"].is_string())
    return invalid("{} --identity doesn't tell a build id: not a lathe binary?", binary);
  return j["build_id"].get<std::string>();
}

}  // namespace lathe
