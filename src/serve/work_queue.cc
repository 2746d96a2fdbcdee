#include "serve/work_queue.h"

namespace lathe::serve {

WorkQueue::WorkQueue(int threads, size_t most) : most_(most) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

bool WorkQueue::push(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= most_ || stop_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace lathe::serve
