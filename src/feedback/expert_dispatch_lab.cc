#include "feedback/expert_dispatch_lab.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/traced_mutex.h"

namespace lathe {

namespace {

constexpr int64_t kAwakeNs = 150000;  // before a deadline: a sleeper wakes late, and the lab is about less than that

void wait_until(int64_t deadline) {
  const int64_t sleep_until = deadline - kAwakeNs;
  if (sleep_until > monotonic_ns()) {
    const timespec at{sleep_until / 1000000000, sleep_until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) {
    }
  }
  while (monotonic_ns() < deadline) _mm_pause();
}

// What else runs on the machine isn't the lab's subject: its threads, which sleep nearly always, ask to be woken in
// time, and go on as they are where they may not ask. Threads that are started meanwhile inherit it.
class Punctual {
 public:
  Punctual() {
    pthread_getschedparam(pthread_self(), &policy_, &before_);
    sched_param first{};
    first.sched_priority = 1;
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
    slack_ = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1);
  }
  ~Punctual() {
    pthread_setschedparam(pthread_self(), policy_, &before_);
    prctl(PR_SET_TIMERSLACK, slack_ > 0 ? slack_ : 0);
  }
  Punctual(const Punctual&) = delete;

 private:
  int policy_ = SCHED_OTHER, slack_ = 0;
  sched_param before_{};
};

// Layers whose rows are written, for the thread that sends them.
class LayerQueue {
 public:
  void push(int layer) {
    {
      const std::lock_guard lock(mutex_);
      layers_.push_back(layer);
    }
    changed_.notify_one();
  }
  int pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !layers_.empty(); });
    const int layer = layers_.front();
    layers_.pop_front();
    return layer;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> layers_;
};

class DispatchLab {
 public:
  explicit DispatchLab(const DispatchLabOptions& o) : o_(o), work_lock_("work queue", o.probes) {}

  int64_t run() {
    const Punctual punctual;
    const int64_t begin = monotonic_ns();
    std::thread sender;
    if (o_.transfer) sender = std::thread([this] { send_layers(); });
    prefill();
    if (sender.joinable()) sender.join();
    return monotonic_ns() - begin;
  }

 private:
  void note(ProbeKind kind, const char* name, int64_t id) {
    if (o_.probes) o_.probes->event(kind, name, nullptr, id);
  }

  void prefill() {
    const ProbeSpan probe(o_.probes, "prefill");
    for (int layer = 0; layer < o_.layers; ++layer) {
      {
        const ProbeSpan attention(o_.probes, "attention", nullptr, -1, {-1, layer});
        wait_until(monotonic_ns() + o_.attention_us * 1000);
      }
      written_.push(layer);
      dispatch_experts(layer);
    }
  }

  void dispatch_experts(int layer) {
    const ProbeSpan probe(o_.probes, "expert dispatch", nullptr, -1, {-1, layer});
    std::unique_lock lock(work_lock_);
    const int64_t done = monotonic_ns() + o_.experts_us * 1000;  // the device has it
    note(ProbeKind::kAsyncBegin, "experts", layer);
    if (!o_.hold_lock_across_wait) lock.unlock();
    {
      const ProbeSpan wait(o_.probes, "device wait", nullptr, -1, {-1, layer});
      wait_until(done);
    }
    note(ProbeKind::kAsyncEnd, "experts", layer);
  }

  void send_layers() {
    pthread_setname_np(pthread_self(), "transfer");
    for (int sent = 0; sent < o_.layers; ++sent) {
      const int layer = written_.pop();
      const ProbeSpan probe(o_.probes, "send layer", nullptr, -1, {-1, layer});
      for (int chunk = 0; chunk < o_.chunks_per_layer; ++chunk)
        send_chunk(int64_t{layer} * o_.chunks_per_layer + chunk);
    }
  }

  // The work queue's lock is needed to post; the link works alone.
  void send_chunk(int64_t id) {
    int64_t arrived;
    {
      const ProbeSpan probe(o_.probes, "post chunk");
      const std::lock_guard lock(work_lock_);
      arrived = monotonic_ns() + o_.chunk_us * 1000;
      note(ProbeKind::kAsyncBegin, "transfer", id);
    }
    {
      const ProbeSpan wait(o_.probes, "link wait");
      wait_until(arrived);
    }
    note(ProbeKind::kAsyncEnd, "transfer", id);
    const ProbeSpan probe(o_.probes, "next chunk");
    wait_until(monotonic_ns() + o_.next_chunk_us * 1000);
  }

  const DispatchLabOptions& o_;
  TracedMutex work_lock_;
  LayerQueue written_;
};

}  // namespace

int64_t run_dispatch_lab(const DispatchLabOptions& options) { return DispatchLab(options).run(); }

}  // namespace lathe
