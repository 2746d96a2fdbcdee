#pragma once

#include "feedback/op_exchange.h"
#include "feedback/shared_memory.h"

// The candidate's side of a judged operator: runs one case where the supervisor has put its inputs, and says when it is
// done. It holds no clock, no reference and no verdict.

namespace lathe {

// A loaded case and what its calls need.
struct ServedCase {
  const AnyOp* op = nullptr;
  int case_index = 0, variant = 0;
  std::vector<std::unique_ptr<AnyCase>> slots;
  int64_t slot_bytes = 0;
  char* memory = nullptr;
  Device* device = nullptr;
  ThreadPool* pool = nullptr;
  Arena* scratch = nullptr;

  Status run(int slot, int64_t begin = 0, int64_t rows = -1);
};

// What a server does when it is asked. This one is honest; the self-test has others (feedback/cheats.h).
class OpBehaviour {
 public:
  virtual ~OpBehaviour() = default;
  virtual std::string build_id() const;
  virtual uint64_t layout(uint64_t honest) const { return honest; }
  virtual Status loaded(ServedCase&) { return Status::ok(); }
  virtual Status window(ServedCase& served, const OpRequest& request);
  virtual uint64_t told_ns(uint64_t honest) const { return honest; }
};

// Until the other side closes the socket.
Status serve_operators(int socket, SharedMemory memory, OpBehaviour& behaviour);

}  // namespace lathe
