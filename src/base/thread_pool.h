#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/probe.h"

namespace lathe {

// The one pool of workers in a process. run() hands out task numbers 0..tasks-1; the caller works, too, and returns
// when all are done. What a task computes may depend on its number alone, never on the worker: so results are the same
// for any number of threads. One caller at a time; calls from inside a task run inline.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  // Says from now on when workers work, and how long the caller waits for them; not while a call runs. null: off.
  void probe(Recorder* probes) { probes_ = probes; }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // f(int64_t task, int worker), worker in [0, threads()).
  template <class F>
  void run(int64_t tasks, F&& f) {
    using Plain = std::remove_reference_t<F>;
    dispatch(
        tasks, [](void* context, int64_t task, int worker) { (*static_cast<Plain*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Call = void (*)(void*, int64_t, int);
  void dispatch(int64_t tasks, Call call, void* context);
  void serve(int worker);
  void work(int worker);

  struct alignas(64) Job {
    Call call = nullptr;
    void* context = nullptr;
    int64_t tasks = 0;
  } job_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
  Recorder* probes_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace lathe
