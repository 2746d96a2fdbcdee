#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"

namespace lathe {

// Collectives between ranks that run the same program. Every rank calls the same functions in the same order. Buffers
// are host-visible. Sums are taken in rank order, so a result is the same on every rank and in every run.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void barrier() = 0;
  // data[i] becomes the sum over ranks.
  virtual void all_reduce_sum(float* data, int64_t count) = 0;
  // `all` receives size() blocks of `bytes` in rank order.
  virtual void all_gather(const void* mine, void* all, int64_t bytes) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
};

// `size` ranks in this process, one thread each.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size);

// Runs body(rank's communicator) on one thread a rank; the first error in rank order, if any.
Status run_ranks(int size, const std::function<Status(Communicator&)>& body);

}  // namespace lathe
