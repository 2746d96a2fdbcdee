#include "base/probe.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "base/thread_census.h"
#include "base/thread_pool.h"
#include "base/traced_mutex.h"

namespace lathe {
namespace {

std::vector<ProbeEvent> events_of(const Recorder& recorder) {
  std::vector<ProbeEvent> all;
  for (const ProbeRing* ring : recorder.rings())
    for (int64_t i = 0; i < ring->size(); ++i) all.push_back(ring->at(i));
  return all;
}

TEST(Probe, ASpanIsABeginAndAnEndWithItsPlace) {
  Recorder recorder({});
  {
    const ProbeSpan span(&recorder, "outer", "fast", 7, {3, 2});
  }
  const auto events = events_of(recorder);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_STREQ(events[0].name, "outer");
  EXPECT_STREQ(events[0].variant, "fast");
  EXPECT_EQ(events[0].value, 7);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_EQ(events[0].layer, 2);
  EXPECT_EQ(events[1].kind, ProbeKind::kEnd);
  EXPECT_GE(events[1].time_ns, events[0].time_ns);
}

TEST(Probe, EachThreadHasItsRingAndEachRecorderItsOwn) {
  Recorder one({}), two({});
  const auto work = [&] {
    for (int i = 0; i < 1000; ++i) {
      const ProbeSpan a(&one, "a"), b(i % 2 ? &two : nullptr, "b");
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (auto& t : threads) t.join();
  ASSERT_EQ(one.rings().size(), 4u);
  ASSERT_EQ(two.rings().size(), 4u);
  for (const ProbeRing* ring : one.rings()) {
    EXPECT_EQ(ring->size(), 2000);
    for (int64_t i = 1; i < ring->size(); ++i) EXPECT_GE(ring->at(i).time_ns, ring->at(i - 1).time_ns);
  }
  for (const ProbeRing* ring : two.rings()) EXPECT_EQ(ring->size(), 1000);
}

TEST(Probe, AFullRingCountsWhatIsLost) {
  Recorder recorder({.most_events_per_thread = 10});
  for (int i = 0; i < 8; ++i) const ProbeSpan span(&recorder, "x");
  EXPECT_EQ(recorder.rings()[0]->size(), 10);
  EXPECT_EQ(recorder.lost_events(), 6);
}

TEST(Probe, CountersReadNoClockAndCountNames) {
  Recorder recorder({.level = ProbeLevel::kCounters});
  for (int i = 0; i < 5; ++i) const ProbeSpan span(&recorder, "x", i % 2 ? "odd" : "even");
  EXPECT_TRUE(events_of(recorder).empty());
  const auto counts = recorder.rings()[0]->counts();
  EXPECT_EQ(counts.at({"x", "odd"}), 2);
  EXPECT_EQ(counts.at({"x", "even"}), 3);
}

TEST(Probe, InjectionsAreReadAndRefused) {
  const Injection hold = Injection::parse("hold:work queue=250").value();
  EXPECT_EQ(hold.where, Injection::Where::kHold);
  EXPECT_EQ(hold.name, "work queue");
  EXPECT_EQ(hold.delay_us, 250);
  EXPECT_EQ(Injection::parse("kda_decode=10").value().where, Injection::Where::kSpan);
  for (const char* bad : {"", "x", "=5", "x=", "x=-1", "x=0", "x=5us", "hold:=5", "x=99999999999"})
    EXPECT_FALSE(Injection::parse(bad).is_ok()) << bad;
}

TEST(Probe, AnInjectedDelayIsSpentInTheSpanThatIsNamed) {
  Recorder recorder({.injections = {Injection::parse("slow=2000").value()}});
  for (const char* name : {"slow", "other"}) const ProbeSpan span(&recorder, name);
  const auto e = events_of(recorder);
  ASSERT_EQ(e.size(), 4u);
  EXPECT_GE(e[1].time_ns - e[0].time_ns, 2000000);
}

TEST(TracedMutex, SaysWhoWaitedForWhom) {
  Recorder recorder({});
  TracedMutex mutex("pool", &recorder);
  mutex.lock();
  std::thread waiter([&] { const std::lock_guard lock(mutex); });
  // The waiter has noted its wait before it can be let in.
  const auto waits = [&] {
    for (const ProbeEvent& e : events_of(recorder))
      if (e.kind == ProbeKind::kLockWait) return true;
    return false;
  };
  while (!waits()) std::this_thread::yield();
  mutex.unlock();
  waiter.join();
  int acquired = 0, released = 0;
  for (const ProbeEvent& e : events_of(recorder)) {
    if (e.kind == ProbeKind::kLockWait) {
      EXPECT_EQ(e.value, system_thread_id());
    }
    acquired += e.kind == ProbeKind::kLockAcquire, released += e.kind == ProbeKind::kLockRelease;
  }
  EXPECT_EQ(acquired, 2);
  EXPECT_EQ(released, 2);
}

TEST(TracedMutex, IsAMutexWithAndWithoutRecorder) {
  Recorder recorder({});
  for (Recorder* r : {static_cast<Recorder*>(nullptr), &recorder}) {
    TracedMutex mutex("count", r);
    int64_t count = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          const std::lock_guard lock(mutex);
          ++count;
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(count, 6000);
    EXPECT_TRUE(mutex.try_lock());
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
    mutex.unlock();
  }
}

TEST(TracedMutex, WorksWithAConditionVariable) {
  TracedMutex mutex("queue");
  std::condition_variable_any changed;
  bool ready = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ready; });
  });
  {
    const std::lock_guard lock(mutex);
    ready = true;
  }
  changed.notify_one();
  waiter.join();
}

TEST(ThreadCensus, KnowsThisThreadAndThePool) {
  const size_t before = thread_census().size();
  ThreadPool pool(3);
  pool.run(8, [](int64_t, int) {});
  const auto threads = thread_census();
  EXPECT_EQ(threads.size(), before + 2);
  int this_thread = 0;
  for (const LiveThread& t : threads) this_thread += t.id == system_thread_id();
  EXPECT_EQ(this_thread, 1);
}

}  // namespace
}  // namespace lathe
