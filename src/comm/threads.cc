#include <barrier>
#include <cstring>
#include <thread>

#include "comm/communicator.h"

namespace lathe {

namespace {

// What the ranks of a group share: a barrier, and where each rank's buffer lies during a collective.
struct Group {
  explicit Group(int size) : meet(size), buffers(size) {}
  std::barrier<> meet;
  std::vector<void*> buffers;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank, int size)
      : group_(std::move(group)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { group_->meet.arrive_and_wait(); }

  void all_reduce_sum(float* data, int64_t count) override {
    publish(data);
    std::vector<float> sum(count, 0.0f);
    for (int r = 0; r < size_; ++r)
      for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<const float*>(group_->buffers[r])[i];
    barrier();
    std::memcpy(data, sum.data(), count * sizeof(float));
    barrier();
  }
  void all_gather(const void* mine, void* all, int64_t bytes) override {
    publish(const_cast<void*>(mine));
    for (int r = 0; r < size_; ++r)
      if (bytes) std::memmove(static_cast<char*>(all) + r * bytes, group_->buffers[r], bytes);
    barrier();
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    publish(data);
    if (rank_ != root && bytes) std::memcpy(data, group_->buffers[root], bytes);
    barrier();
  }

 private:
  void publish(void* buffer) {
    group_->buffers[rank_] = buffer;
    barrier();
  }

  std::shared_ptr<Group> group_;
  int rank_, size_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size) {
  auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<ThreadCommunicator>(group, r, size));
  return ranks;
}

Status run_ranks(int size, const std::function<Status(Communicator&)>& body) {
  auto ranks = make_thread_communicators(size);
  std::vector<Status> status(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { status[r] = body(*ranks[r]); });
  for (std::thread& t : threads) t.join();
  for (const Status& s : status) LATHE_RETURN_IF_ERROR(s);
  return Status::ok();
}

}  // namespace lathe
