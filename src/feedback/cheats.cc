#include "feedback/cheats.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/bf16.h"
#include "ops/element.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<char>;

// A slot's outputs, in the order of the fields.
std::vector<FieldView> outputs(ServedCase& c, int slot) {
  std::vector<FieldView> all = c.slots[slot]->outputs();
  std::erase_if(all, [](const FieldView& f) { return f.elements() == 0; });
  return all;
}
std::vector<FieldView> inputs(ServedCase& c, int slot) {
  std::vector<FieldView> all = c.slots[slot]->fields();
  std::erase_if(all, [](const FieldView& f) { return f.role != Role::kIn || f.elements() == 0; });
  return all;
}
int64_t extent(const FieldView& f) { return ((f.rows - 1) * f.stride + f.width) * dtype_bytes(f.dtype); }
char* bytes_of(const FieldView& f) { return static_cast<char*>(const_cast<void*>(f.data)); }

Bytes keep(const std::vector<FieldView>& fields) {
  Bytes all;
  for (const FieldView& f : fields) all.insert(all.end(), bytes_of(f), bytes_of(f) + extent(f));
  return all;
}
void put_back(const std::vector<FieldView>& fields, const Bytes& kept) {
  size_t at = 0;
  for (const FieldView& f : fields) std::memcpy(bytes_of(f), kept.data() + at, extent(f)), at += extent(f);
}
template <class F>
void for_elements(const FieldView& f, F&& act) {
  for (int64_t r = 0; r < f.rows; ++r)
    for (int64_t i = 0; i < f.width; ++i) act(r * f.stride + i);
}
void round_element(const FieldView& f, int64_t i, int bits) {
  uint32_t u;
  if (f.dtype == DType::kF32) {
    std::memcpy(&u, bytes_of(f) + i * 4, 4);
    u &= ~0u << bits;
    std::memcpy(bytes_of(f) + i * 4, &u, 4);
  } else if (f.dtype == DType::kBF16) {
    uint16_t h;
    std::memcpy(&h, bytes_of(f) + i * 2, 2);
    h &= static_cast<uint16_t>(~0u << std::max(0, bits - 12));
    std::memcpy(bytes_of(f) + i * 2, &h, 2);
  }
}

void spin(std::chrono::nanoseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
  }
}

// Does one thing with each slot of a window; `call` counts windows from 0.
class PerSlot : public OpBehaviour {
 public:
  using Act = std::function<Status(ServedCase&, int slot, int call, int place)>;
  explicit PerSlot(Act act) : act_(std::move(act)) {}
  Status window(ServedCase& served, const OpRequest& request) override {
    for (int i = 0; i < request.count; ++i) LATHE_RETURN_IF_ERROR(act_(served, request.order[i], call_, i));
    ++call_;
    return Status::ok();
  }

 private:
  Act act_;
  int call_ = 0;
};

// Computes, and then does something to the slot.
PerSlot::Act afterwards(std::function<void(ServedCase&, int slot)> spoil) {
  return [spoil](ServedCase& c, int slot, int, int) {
    LATHE_RETURN_IF_ERROR(c.run(slot));
    spoil(c, slot);
    return Status::ok();
  };
}

// The results of the first call with the same key, given again.
PerSlot::Act cached(std::function<std::string(ServedCase&, int slot)> key) {
  auto known = std::make_shared<std::map<std::string, Bytes>>();
  return [key, known](ServedCase& c, int slot, int, int) {
    Bytes& result = (*known)[key(c, slot)];
    if (result.empty()) {
      LATHE_RETURN_IF_ERROR(c.run(slot));
      result = keep(outputs(c, slot));
    }
    put_back(outputs(c, slot), result);
    return Status::ok();
  };
}

// Says "done" at once and works on in a thread of its own.
class WorksBehindTheClock final : public OpBehaviour {
 public:
  ~WorksBehindTheClock() override { join(); }
  Status window(ServedCase& served, const OpRequest& request) override {
    join();
    worker_ = std::thread([&served, request] {
      for (int i = 0; i < request.count; ++i) (void)served.run(request.order[i]);
    });
    return Status::ok();
  }

 private:
  void join() {
    if (worker_.joinable()) worker_.join();
  }
  std::thread worker_;
};

// Keeps computing all slots while nothing is asked, so that little is left to do when the clock runs.
class WorksBeforeTheClock final : public OpBehaviour {
 public:
  ~WorksBeforeTheClock() override {
    stop_ = true;
    if (worker_.joinable()) worker_.join();
  }
  Status loaded(ServedCase& served) override {
    worker_ = std::thread([this, &served] {
      while (!stop_)
        for (size_t s = 0; s < served.slots.size() && !stop_; ++s) {
          std::lock_guard lock(mutex_);
          if (!served.slots.empty()) (void)served.run(static_cast<int>(s));
        }
    });
    return Status::ok();
  }
  Status window(ServedCase& served, const OpRequest& request) override {
    std::lock_guard lock(mutex_);
    for (int i = 0; i < request.count; ++i) LATHE_RETURN_IF_ERROR(served.run(request.order[i]));
    return Status::ok();
  }

 private:
  std::thread worker_;
  std::mutex mutex_;
  std::atomic<bool> stop_ = false;
};

class OtherBuild final : public OpBehaviour {
 public:
  std::string build_id() const override { return "0123456789abcdef"; }
};
class OtherShapes final : public OpBehaviour {
 public:
  uint64_t layout(uint64_t honest) const override { return honest + 1; }
};
class SlowClock final : public OpBehaviour {
 public:
  Status window(ServedCase& served, const OpRequest& request) override {
    const Status s = OpBehaviour::window(served, request);
    spin(std::chrono::milliseconds(2));  // what it then forgets
    return s;
  }
  uint64_t told_ns(uint64_t honest) const override { return honest / 50; }
};
class Burns final : public OpBehaviour {
 public:
  Status window(ServedCase& served, const OpRequest& request) override {
    std::vector<std::thread> more;
    std::atomic<bool> stop = false;
    for (int i = 0; i < 3; ++i)
      more.emplace_back([&] {
        while (!stop) spin(std::chrono::microseconds(50));
      });
    const auto end = Clock::now() + std::chrono::milliseconds(15);
    const Status s = OpBehaviour::window(served, request);
    while (Clock::now() < end) usleep(500);
    stop = true;
    for (std::thread& t : more) t.join();
    return s;
  }
};
class Dies final : public OpBehaviour {
 public:
  Status window(ServedCase& served, const OpRequest& request) override {
    if (++calls_ == 4) _exit(0);
    return OpBehaviour::window(served, request);
  }

 private:
  int calls_ = 0;
};

template <class T>
std::function<std::unique_ptr<OpBehaviour>()> a() {
  return [] { return std::make_unique<T>(); };
}
std::function<std::unique_ptr<OpBehaviour>()> per_slot(std::function<PerSlot::Act()> make) {
  return [make] { return std::make_unique<PerSlot>(make()); };
}
std::function<std::unique_ptr<OpBehaviour>()> spoils(std::function<void(ServedCase&, int)> spoil) {
  return per_slot([spoil] { return afterwards(spoil); });
}
std::function<std::unique_ptr<OpBehaviour>()> fills(int byte) {
  return per_slot([byte] {
    return [byte](ServedCase& c, int slot, int, int) {
      for (const FieldView& f : outputs(c, slot))
        for (int64_t r = 0; r < f.rows; ++r)
          std::memset(bytes_of(f) + r * f.stride * dtype_bytes(f.dtype), byte, f.width * dtype_bytes(f.dtype));
      return Status::ok();
    };
  });
}

// Each call takes `factor` times as long, by what `waste` does meanwhile.
class Slowed final : public OpBehaviour {
 public:
  Slowed(double factor, std::function<void(std::chrono::nanoseconds)> waste)
      : factor_(factor), waste_(std::move(waste)) {}
  Status window(ServedCase& served, const OpRequest& request) override {
    const auto begin = Clock::now();
    const Status s = OpBehaviour::window(served, request);
    waste_(std::chrono::duration_cast<std::chrono::nanoseconds>((Clock::now() - begin) * (factor_ - 1)));
    return s;
  }

 private:
  double factor_;
  std::function<void(std::chrono::nanoseconds)> waste_;
};

void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }
void allocate_for(std::chrono::nanoseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
    std::vector<char> page(1 << 20);
    for (size_t i = 0; i < page.size(); i += 4096) page[i] = 1;
  }
}
void stride_for(std::chrono::nanoseconds time) {
  static std::vector<char> far(64 << 20);
  size_t at = 0;
  for (const auto end = Clock::now() + time; Clock::now() < end;)
    for (int i = 0; i < 1000; ++i) far[at = (at + 4099 * 64) % far.size()]++;
}
void hold_lock_for(std::chrono::nanoseconds time) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::this_thread::sleep_for(time);
}

void system_calls_for(std::chrono::nanoseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) usleep(1);
}

std::string text_of(const FieldView& f, int64_t most) { return std::string(bytes_of(f), std::min(extent(f), most)); }

std::vector<PlantedCandidate> list() {
  using enum Planted;
  return {
      {"nothing", kCheat, "work skipped: says done, does nothing",
       per_slot([] { return [](ServedCase&, int, int, int) { return Status::ok(); }; })},
      {"half_the_slots", kCheat, "work skipped: every second copy", per_slot([] {
         return [](ServedCase& c, int slot, int, int place) { return place % 2 ? Status::ok() : c.run(slot); };
       })},
      {"half_the_rows", kCheat, "work skipped: the first half of the rows", per_slot([] {
         return [](ServedCase& c, int slot, int, int) {
           const int64_t rows = row_count(c.slots[slot]->fields());
           return c.run(slot, 0, std::max<int64_t>(1, rows / 2));
         };
       })},
      {"first_windows_only", kCheat, "work skipped after what looks like the warm-up", per_slot([] {
         return [](ServedCase& c, int slot, int call, int) { return call < 2 ? c.run(slot) : Status::ok(); };
       })},
      {"last_slots_only", kCheat, "work skipped where it hopes that only the end is looked at", per_slot([] {
         return [](ServedCase& c, int slot, int, int place) {
           return place + 2 >= static_cast<int>(c.slots.size()) ? c.run(slot) : Status::ok();
         };
       })},
      {"zeros", kCheat, "constant output: zeros", fills(0)},
      {"constant", kCheat, "constant output: one pattern", fills(0x3d)},
      {"nan", kCheat, "constant output: NaN", fills(0xff)},
      {"cached_by_slot", kCheat, "result cached across calls, by the copy's number",
       per_slot([] { return cached([](ServedCase&, int slot) { return std::to_string(slot); }); })},
      {"cached_by_address", kCheat, "result cached across calls, by address", per_slot([] {
         return cached([](ServedCase& c, int slot) {
           return std::to_string(reinterpret_cast<uintptr_t>(inputs(c, slot)[0].data));
         });
       })},
      {"cached_by_glance", kCheat, "result cached across calls, by the first bytes of an input",
       per_slot([] { return cached([](ServedCase& c, int slot) { return text_of(inputs(c, slot)[0], 8); }); })},
      {"cached_by_sum", kCheat,
       "result cached across calls, by the sum of the inputs' bytes: the same when elements change places",
       per_slot([] {
         return cached([](ServedCase& c, int slot) {
           uint64_t sum = 0;
           for (const FieldView& f : inputs(c, slot))
             for (int64_t i = 0; i < extent(f); ++i) sum += static_cast<unsigned char>(bytes_of(f)[i]);
           return std::to_string(sum);
         });
       })},
      {"input_reused", kCheat, "one copy computed, its result given for all", per_slot([] {
         auto kept = std::make_shared<Bytes>();
         return [kept](ServedCase& c, int slot, int, int place) {
           if (place > 0) return put_back(outputs(c, slot), *kept), Status::ok();
           LATHE_RETURN_IF_ERROR(c.run(slot));
           *kept = keep(outputs(c, slot));
           return Status::ok();
         };
       })},
      {"input_as_output", kCheat, "an input's bytes for a result", per_slot([] {
         return [](ServedCase& c, int slot, int, int) {
           const std::vector<FieldView> from = inputs(c, slot);
           for (const FieldView& f : outputs(c, slot))
             std::memcpy(bytes_of(f), bytes_of(from[0]), std::min(extent(f), extent(from[0])));
           return Status::ok();
         };
       })},
      {"left_over", kCheat, "an earlier result, found again in memory, for a new one", per_slot([] {
         auto kept = std::make_shared<std::map<int, Bytes>>();
         return [kept](ServedCase& c, int slot, int call, int) {
           Bytes& earlier = (*kept)[slot];
           if (call % 2) return put_back(outputs(c, slot), earlier), Status::ok();
           LATHE_RETURN_IF_ERROR(c.run(slot));
           earlier = keep(outputs(c, slot));
           return Status::ok();
         };
       })},
      {"lower_precision", kCheat, "results in a coarser format than the contract's",
       spoils([](ServedCase& c, int slot) {
         for (const FieldView& f : outputs(c, slot)) for_elements(f, [&](int64_t i) { round_element(f, i, 17); });
       })},
      {"state_not_updated", kCheat, "what is updated in place is put back as it was", per_slot([] {
         return [](ServedCase& c, int slot, int, int) {
           std::vector<FieldView> fields = outputs(c, slot);
           std::erase_if(fields, [](const FieldView& f) { return f.role != Role::kUpdate; });
           const Bytes before = keep(fields);
           LATHE_RETURN_IF_ERROR(c.run(slot));
           put_back(fields, before);
           return Status::ok();
         };
       })},
      {"one_bad_block", kCheat, "sixteen elements of a result wrong", spoils([](ServedCase& c, int slot) {
         const FieldView f = outputs(c, slot)[0];
         std::memset(bytes_of(f) + f.elements() / 2 / 16 * 16 * dtype_bytes(f.dtype), 0,
                     std::min<int64_t>(16, f.width / 2) * dtype_bytes(f.dtype));
       })},
      {"shifted", kCheat, "results one element further on", spoils([](ServedCase& c, int slot) {
         for (const FieldView& f : outputs(c, slot)) {
           const int64_t element = dtype_bytes(f.dtype);
           for (int64_t r = 0; r < f.rows; ++r)
             std::memmove(bytes_of(f) + (r * f.stride + 1) * element, bytes_of(f) + r * f.stride * element,
                          (f.width - 1) * element);
         }
       })},
      {"rows_swapped", kCheat, "two rows of a result exchanged", spoils([](ServedCase& c, int slot) {
         std::vector<FieldView> fields = outputs(c, slot);
         std::erase_if(fields, [](const FieldView& f) { return f.rows < 2 || f.role != Role::kOut; });
         if (fields.empty()) return;
         const FieldView& f = fields[0];
         char *x = bytes_of(f), *y = bytes_of(f) + (f.rows - 1) * f.stride * dtype_bytes(f.dtype);
         std::swap_ranges(x, x + f.width * dtype_bytes(f.dtype), y);
       })},
      {"input_changed", kCheat, "an input simplified in place", spoils([](ServedCase& c, int slot) {
         const FieldView f = inputs(c, slot)[0];
         std::memset(bytes_of(f), 0, f.width * dtype_bytes(f.dtype));
       })},
      {"beyond_its_end", kCheat, "bytes behind an output written", spoils([](ServedCase& c, int slot) {
         const FieldView f = outputs(c, slot)[0];
         std::memset(bytes_of(f) + extent(f), 0x11, 32);
       })},
      {"other_input", kCheat, "the next copy's inputs computed instead", per_slot([] {
         return [](ServedCase& c, int slot, int, int) {
           const int other = (slot + 1) % static_cast<int>(c.slots.size());
           const std::vector<FieldView> theirs = outputs(c, other), ours = outputs(c, slot);
           const Bytes before = keep(theirs);
           LATHE_RETURN_IF_ERROR(c.run(other));
           const Bytes result = keep(theirs);
           put_back(theirs, before), put_back(ours, result);
           return Status::ok();
         };
       })},
      {"behind_the_clock", kCheat, "timer raced: done is said first, and the work goes on", a<WorksBehindTheClock>()},
      {"before_the_clock", kCheat, "timer raced: computed between windows", a<WorksBeforeTheClock>()},
      {"clock_lies", kCheat, "its own clock says that it took a fiftieth", a<SlowClock>()},
      {"more_cores", kCheat, "threads beside those that it was given", a<Burns>()},
      {"other_build", kCheat, "build not the one measured", a<OtherBuild>()},
      {"other_shapes", kCheat, "a smaller case under the same name", a<OtherShapes>()},
      {"dies", kCheat, "leaves in the middle and hopes for what was measured", a<Dies>()},

      {"honest", kHonest, "the default variant", a<OpBehaviour>()},
      {"honest_backwards", kHonest, "the same calls in another order",
       [] {
         struct Backwards final : OpBehaviour {
           Status window(ServedCase& served, const OpRequest& request) override {
             for (int i = request.count; i-- > 0;) LATHE_RETURN_IF_ERROR(served.run(request.order[i]));
             return Status::ok();
           }
         };
         return std::make_unique<Backwards>();
       }},
      {"honest_setup", kHonest, "time spent on preparations when the case is loaded",
       [] {
         struct Prepares final : OpBehaviour {
           Status loaded(ServedCase& served) override {
             spin(std::chrono::milliseconds(20));
             return served.run(0);
           }
         };
         return std::make_unique<Prepares>();
       }},
      {"honest_twice", kHonest, "the first window slower than the rest", per_slot([] {
         return [](ServedCase& c, int slot, int call, int) {
           if (call == 0) spin(std::chrono::microseconds(200));
           return c.run(slot);
         };
       })},
      {"honest_copy", kHonest, "results copied once more, the same bytes",
       spoils([](ServedCase& c, int slot) { put_back(outputs(c, slot), keep(outputs(c, slot))); })},

      {"slow_work", kSlowdown, "three times the work", [] { return std::make_unique<Slowed>(3, spin); }},
      {"slow_sleep", kSlowdown, "sleeps twice as long as it works",
       [] { return std::make_unique<Slowed>(3, sleep_for); }},
      {"slow_lock", kSlowdown, "holds a lock while it waits",
       [] { return std::make_unique<Slowed>(3, hold_lock_for); }},
      {"slow_allocation", kSlowdown, "allocates fresh pages meanwhile",
       [] { return std::make_unique<Slowed>(3, allocate_for); }},
      {"slow_stride", kSlowdown, "strides through memory meanwhile",
       [] { return std::make_unique<Slowed>(3, stride_for); }},
      {"slow_copy", kSlowdown, "copies inputs and outputs three times more", per_slot([] {
         return [](ServedCase& c, int slot, int, int) {
           const auto begin = Clock::now();
           const Status s = c.run(slot);
           const std::vector<FieldView> in = inputs(c, slot);
           for (const auto end = Clock::now() + 2 * (Clock::now() - begin); Clock::now() < end;) (void)keep(in);
           return s;
         };
       })},
      {"slow_calls", kSlowdown, "asks the system again and again meanwhile",
       [] { return std::make_unique<Slowed>(3, system_calls_for); }},
      {"slow_head", kSlowdown, "the first copy of a window keeps the others waiting",
       [] {
         struct Head final : OpBehaviour {
           Status window(ServedCase& served, const OpRequest& request) override {
             const auto begin = Clock::now();
             LATHE_RETURN_IF_ERROR(served.run(request.order[0]));
             sleep_for((Clock::now() - begin) * request.count * 2);
             for (int i = 1; i < request.count; ++i) LATHE_RETURN_IF_ERROR(served.run(request.order[i]));
             return Status::ok();
           }
         };
         return std::make_unique<Head>();
       }},
  };
}

}  // namespace

const std::vector<PlantedCandidate>& planted_candidates() {
  static const std::vector<PlantedCandidate> all = list();
  return all;
}

const PlantedCandidate* planted_candidate(const std::string& name) {
  for (const PlantedCandidate& p : planted_candidates())
    if (name == p.name) return &p;
  return nullptr;
}

}  // namespace lathe
