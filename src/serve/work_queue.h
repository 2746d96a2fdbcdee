#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lathe::serve {

// Threads for what takes longer than a connection's thread may: parsing, tokenizing, decoding pictures, compiling
// grammars. Bounded: push() says no when `most` tasks wait.
class WorkQueue {
 public:
  WorkQueue(int threads, size_t most);
  ~WorkQueue();  // what waits is dropped, what runs is finished
  WorkQueue(const WorkQueue&) = delete;

  bool push(std::function<void()> task);

 private:
  void work();

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lathe::serve
