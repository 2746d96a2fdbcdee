#include "base/probe.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace lathe {

namespace {

// The ring of this thread in the recorder it last wrote to.
struct LastRing {
  uint64_t recorder = 0;
  ProbeRing* ring = nullptr;
};
thread_local LastRing last_ring;

uint64_t next_recorder_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string thread_name() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

// Delays are spent awake: a sleeping thread would give its core away and wake late.
void spend(int64_t us) {
  const int64_t until = monotonic_ns() + us * 1000;
  while (monotonic_ns() < until) {
  }
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

int64_t system_thread_id() {
  thread_local const int64_t id = syscall(SYS_gettid);
  return id;
}

Result<Injection> Injection::parse(std::string_view text) {
  Injection i;
  std::string_view rest = text;
  for (const auto& [prefix, where] : {std::pair("hold:", Where::kHold), std::pair("wait:", Where::kWait)})
    if (rest.starts_with(prefix)) i.where = where, rest.remove_prefix(5);
  const size_t equals = rest.rfind('=');
  if (equals != std::string_view::npos && equals > 0) {
    i.name = rest.substr(0, equals);
    const auto [end, error] = std::from_chars(rest.data() + equals + 1, rest.data() + rest.size(), i.delay_us);
    if (error == std::errc() && end == rest.data() + rest.size() && i.delay_us > 0 && i.delay_us <= 10000000) return i;
  }
  return invalid(
      "--inject {}: expected SPAN=MICROSECONDS, hold:LOCK=MICROSECONDS or wait:LOCK=MICROSECONDS, at most 10 s", text);
}

std::string Injection::text() const {
  constexpr const char* kPrefixes[] = {"", "hold:", "wait:"};
  return fmt::format("{}{}={}us", kPrefixes[static_cast<int>(where)], name, delay_us);
}

ProbeRing::~ProbeRing() {
  for (auto& block : blocks_) delete[] block.load();
}

void ProbeRing::push(const ProbeEvent& event) {
  const int64_t at = size_.load(std::memory_order_relaxed), block = at / kBlockEvents;
  if (at >= most_events_ || block >= kMostBlocks) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ProbeEvent* events = blocks_[block].load(std::memory_order_relaxed);
  if (!events) {
    events = new ProbeEvent[kBlockEvents];
    blocks_[block].store(events, std::memory_order_release);
  }
  events[at % kBlockEvents] = event;
  size_.store(at + 1, std::memory_order_release);
}

void ProbeRing::count(const char* name, const char* variant) {
  const size_t hash = reinterpret_cast<uintptr_t>(name) / 8 * 31 + reinterpret_cast<uintptr_t>(variant) / 8;
  for (size_t i = 0; i < kCounts; ++i) {
    Count& c = counts_[(hash + i) % kCounts];
    const char* there = c.name.load(std::memory_order_relaxed);
    if (!there) {
      c.variant.store(variant, std::memory_order_relaxed);
      c.name.store(name, std::memory_order_release);
      there = name;
    }
    if (there == name && c.variant.load(std::memory_order_relaxed) == variant) {
      c.count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  lost_.fetch_add(1, std::memory_order_relaxed);
}

std::map<std::pair<std::string, std::string>, int64_t> ProbeRing::counts() const {
  std::map<std::pair<std::string, std::string>, int64_t> by_name;
  for (const Count& c : counts_)
    if (const char* name = c.name.load(std::memory_order_acquire)) {
      const char* variant = c.variant.load(std::memory_order_relaxed);
      by_name[{name, variant ? variant : ""}] += c.count.load(std::memory_order_relaxed);
    }
  return by_name;
}

Recorder::Recorder(Options options) : options_(std::move(options)), id_(next_recorder_id()) {}
Recorder::~Recorder() = default;

ProbeRing& Recorder::ring() {
  if (last_ring.recorder == id_) return *last_ring.ring;
  const std::lock_guard lock(mutex_);
  const int64_t thread = system_thread_id();
  const auto own = std::find_if(rings_.begin(), rings_.end(), [&](const auto& r) { return r->thread_id() == thread; });
  ProbeRing* ring = own == rings_.end() ? nullptr : own->get();
  if (!ring) {
    rings_.push_back(std::make_unique<ProbeRing>(options_.most_events_per_thread, thread, thread_name()));
    ring = rings_.back().get();
  }
  last_ring = {id_, ring};
  return *last_ring.ring;
}

void Recorder::event(ProbeKind kind, const char* name, const char* variant, int64_t value, ProbePlace place) {
  if (options_.level == ProbeLevel::kFull) {
    ProbeRing& own = ring();
    own.push({monotonic_ns(), name, variant, value, place.step, place.layer, kind});
  } else if (options_.level == ProbeLevel::kCounters && kind != ProbeKind::kEnd && kind != ProbeKind::kDeviceEnd &&
             kind != ProbeKind::kAsyncEnd && kind != ProbeKind::kLockRelease) {
    ring().count(name, variant);
  }
}

void Recorder::inject(Injection::Where where, const char* name) {
  for (const Injection& i : options_.injections)
    if (i.where == where && i.name == name) spend(i.delay_us);
}

int64_t Recorder::lost_events() const {
  int64_t lost = 0;
  for (const ProbeRing* ring : rings()) lost += ring->lost();
  return lost;
}

std::vector<const ProbeRing*> Recorder::rings() const {
  const std::lock_guard lock(mutex_);
  std::vector<const ProbeRing*> all;
  for (const auto& ring : rings_) all.push_back(ring.get());
  return all;
}

void ProbeSpan::begin(Recorder& recorder, const char* name, const char* variant, int64_t value, ProbePlace place) {
  recorder.event(ProbeKind::kBegin, name, variant, value, place);
  recorder.inject(Injection::Where::kSpan, name);
}

void ProbeSpan::end(Recorder& recorder, const char* name) { recorder.event(ProbeKind::kEnd, name); }

}  // namespace lathe
