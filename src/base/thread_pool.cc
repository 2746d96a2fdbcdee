#include "base/thread_pool.h"

#include <immintrin.h>

#include "base/check.h"

namespace lathe {

namespace {

// A decode step makes hundreds of calls a few microseconds apart: workers spin about 100 us before they sleep.
constexpr int kSpins = 4000;

thread_local bool inside_task = false;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  LATHE_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::work(int worker) {
  inside_task = true;
  for (int64_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < job_.tasks;)
    job_.call(job_.context, task, worker);
  inside_task = false;
}

void ThreadPool::dispatch(int64_t tasks, Call call, void* context) {
  if (tasks <= 0) return;
  if (inside_task || workers_.empty() || tasks == 1) {
    const bool outer = inside_task;
    inside_task = true;
    for (int64_t task = 0; task < tasks; ++task) call(context, task, 0);
    inside_task = outer;
    return;
  }
  job_ = {call, context, tasks};
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  const ProbeSpan probe(probes_, "pool wait");
  while (busy_.load(std::memory_order_acquire) > 0) _mm_pause();
}

void ThreadPool::serve(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) _mm_pause();
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    {
      const ProbeSpan probe(probes_, "pool work");
      work(worker);
    }
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lathe
