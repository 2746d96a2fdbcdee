#pragma once

#include <sys/types.h>

#include <optional>

#include "feedback/op_exchange.h"
#include "feedback/shared_memory.h"

// The supervisor's hold on one life of a candidate: a process that has nothing but the shared memory and a socket.

namespace lathe {

class OpCandidate {
 public:
  // `command` begins with a lathe binary; it must serve operators (`lathe op-server`).
  static Result<std::unique_ptr<OpCandidate>> start(const std::vector<std::string>& command,
                                                    const SharedMemory& memory);
  ~OpCandidate();
  OpCandidate(const OpCandidate&) = delete;

  struct Loaded {
    std::string build_id, variant;
    bool applies = true;
    uint64_t layout = 0;
  };
  struct Load {
    std::string op, case_name, variant;  // variant "": the candidate's default
    uint64_t seed = 1;
    int slots = 1;
    int64_t slot_bytes = 0;
    int threads = 1;
  };
  Result<Loaded> load(const Load& load);

  struct Done {
    double wall_us = 0;       // by our clock
    double worked_us = 0;     // without the time in which others had the cores, as the kernel counts it
    double own_us = 0;        // by the candidate's clock
    double cpu_us = 0;        // that its process used meanwhile
    double cpu_total_us = 0;  // and in its life so far
    int threads = 0;          // the most that were seen meanwhile
  };
  Result<Done> run(const std::vector<uint8_t>& order, int64_t begin = 0, int64_t rows = -1);

  double cpu_us() const;  // that the process has used so far
  int threads() const;    // that the process has now
  // For a core, in its life so far: its thread that waited longest.
  double waited_us() const;

 private:
  OpCandidate() = default;
  struct Watch {
    int most_threads = 0;
    double late_us = 0;  // that we waited for a core when the answer had come
  };
  Result<OpReply> ask(const OpRequest& request, Watch* watch = nullptr);
  std::string ending();

  pid_t pid_ = -1;
  int socket_ = -1;
  int threads_ = 1;  // that it was given
};

// Command line of a candidate: a lathe binary, or a build folder that holds one.
Result<std::string> candidate_binary(const std::string& path);
// What `BINARY --identity` says its build id is.
Result<std::string> candidate_build_id(const std::string& binary);

}  // namespace lathe
