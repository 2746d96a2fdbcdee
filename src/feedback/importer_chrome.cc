#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "feedback/importer.h"
#include "feedback/json_scanner.h"

// Chrome trace-event JSON, as Lathe, the PyTorch profiler and most tools write it.
namespace lathe {

namespace {

constexpr size_t kMostFacts = 1000;
constexpr size_t kLongestFact = 4096;

// Microseconds in decimal to nanoseconds without going through a double, which has only 0.25 us left at today's epoch.
// `unit`: nanoseconds of one, 1000 unless the file counts otherwise.
std::optional<int64_t> nanoseconds(std::string_view text, int64_t unit) {
  const bool negative = !text.empty() && text[0] == '-';
  int64_t us = 0;
  size_t i = negative;
  const size_t first_digit = i;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (us > (INT64_MAX - 9) / 10) return std::nullopt;
    us = us * 10 + (text[i] - '0');
  }
  if (us > INT64_MAX / (unit + 1)) return std::nullopt;
  int64_t ns = us * unit;
  bool plain = i > first_digit;
  if (plain && i < text.size() && text[i] == '.') {
    int64_t digit = unit / 10;
    for (++i; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i, digit /= 10) ns += (text[i] - '0') * digit;
  }
  if (plain && i == text.size()) return negative ? -ns : ns;
  const double value = std::strtod(std::string(text).c_str(), nullptr);  // an exponent, or no number at all
  if (!(std::abs(value) < 4e15) || !plain) return std::nullopt;
  return static_cast<int64_t>(std::llround(value * static_cast<double>(unit)));
}

int64_t integer(std::string_view text, int64_t fallback) {
  if (text.empty()) return fallback;
  char* end = nullptr;
  const std::string copy(text);
  const int64_t value = std::strtoll(copy.c_str(), &end, 10);
  return end == copy.c_str() ? fallback : value;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

struct Event {
  std::string phase, name, category, process, thread, id;
  std::optional<int64_t> time, duration;
  bool bad_time = false;
  uint32_t first_arg = 0, args = 0;
};

class ChromeImporter {
 public:
  ChromeImporter(std::string_view text, const std::string& name) : scanner_(text), name_(name) {}
  Result<Trace> run();

 private:
  struct Mark {  // of a kind that needs a partner
    Event event;
    int track = 0;
  };

  void read_top_object();
  void read_list();
  bool read_event(Event& e);
  bool read_args(Event& e);
  void read_fact(const std::string& path);
  std::optional<std::string> scalar();
  std::optional<int64_t> time_of(std::string_view text);

  void take_event(Event& e);
  void take_complete(const Event& e, int64_t end, bool open);
  bool take_device_op(const Event& e, int64_t end);
  bool take_lock(const Event& e, int64_t end);
  void take_metadata(const Event& e);
  void take_counter(const Event& e);
  void join_begins_and_ends();
  void join_async();
  void join_flows();
  int track(const std::string& process, const std::string& thread, TrackKind kind = TrackKind::kThread);
  std::string_view arg(const Event& e, std::string_view key) const { return trace_.arg(e.first_arg, e.args, key); }

  JsonScanner scanner_;
  std::string name_;
  Trace trace_;
  TraceComplaints complaints_;
  std::map<std::pair<std::string, std::string>, int> tracks_;
  std::vector<Mark> begins_and_ends_, async_, flows_;
  std::vector<std::pair<size_t, std::string>> holders_;  // lock waits whose holder is a thread of the file
  std::map<std::string, NameId> process_names_;
  int64_t last_time_ = INT64_MIN;
  int64_t unit_ = 1000;
  bool unit_known_ = false;
  TimeFence fence_;
  int64_t events_ = 0, pytorch_ = 0;
};

int ChromeImporter::track(const std::string& process, const std::string& thread, TrackKind kind) {
  const auto [at, fresh] = tracks_.try_emplace({process, thread}, static_cast<int>(trace_.tracks.size()));
  if (fresh) {
    Track t;
    t.process = trace_.names.id(process), t.thread = trace_.names.id(thread), t.kind = kind;
    trace_.tracks.push_back(t);
  }
  return at->second;
}

// A string, decoded, or any other value as its text.
std::optional<std::string> ChromeImporter::scalar() {
  if (scanner_.peek() == '"') return scanner_.string();
  const auto raw = scanner_.skip();
  return raw ? std::optional<std::string>(*raw) : std::nullopt;
}

// Microseconds, says the format; some tools write nanoseconds, which since 1970 are too many to be microseconds.
std::optional<int64_t> ChromeImporter::time_of(std::string_view text) {
  constexpr size_t kDigitsOfNanoseconds = 18;
  if (!unit_known_ && text.substr(0, text.find('.')).size() > kDigitsOfNanoseconds) {
    unit_ = 1;
    complaints_.add("times are taken for nanoseconds: as microseconds they would lie beyond the year 30000");
  }
  unit_known_ = unit_known_ || text != "0";
  return nanoseconds(text, unit_);
}

bool ChromeImporter::read_args(Event& e) {
  if (scanner_.peek() != '{') return scanner_.skip().has_value();
  scanner_.take('{');
  e.first_arg = static_cast<uint32_t>(trace_.args.size());
  if (scanner_.take('}')) return true;
  do {
    const auto key = scanner_.string();
    if (!key || !scanner_.take(':')) return false;
    const auto value = scalar();
    if (!value) return false;
    trace_.args.push_back({trace_.names.id(*key), trace_.names.id(*value)});
    ++e.args;
  } while (scanner_.take(','));
  return scanner_.take('}');
}

bool ChromeImporter::read_event(Event& e) {
  if (!scanner_.take('{')) return false;
  if (scanner_.take('}')) return true;
  do {
    const auto key = scanner_.string();
    if (!key || !scanner_.take(':')) return false;
    if (*key == "args") {
      if (!read_args(e)) return false;
      continue;
    }
    const auto value = scalar();
    if (!value) return false;
    if (*key == "ph")
      e.phase = *value;
    else if (*key == "name")
      e.name = *value;
    else if (*key == "cat")
      e.category = *value;
    else if (*key == "pid")
      e.process = *value;
    else if (*key == "tid")
      e.thread = *value;
    else if (*key == "id" || *key == "id2")
      e.id = *value;
    else if (*key == "ts")
      e.time = time_of(*value), e.bad_time |= !e.time;
    else if (*key == "dur")
      e.duration = nanoseconds(*value, unit_), e.bad_time |= !e.duration;
  } while (scanner_.take(','));
  return scanner_.take('}');
}

void ChromeImporter::read_list() {
  scanner_.take('[');
  while (!scanner_.take(']')) {
    if (scanner_.at_end()) {
      trace_.truncated = true;
      complaints_.add("the list of events has no end: the file is cut off");
      return;
    }
    Event e;
    const size_t begin = scanner_.position();
    const size_t args = trace_.args.size();
    if (read_event(e)) {
      ++events_;
      take_event(e);
    } else {
      trace_.args.resize(args);
      scanner_.rewind(begin + 1);
      if (!scanner_.find_object()) {
        trace_.truncated = true;
        complaints_.add("the last event is cut off");
        return;
      }
      complaints_.add("text that isn't an event was stepped over");
      continue;
    }
    scanner_.take(',');
  }
}

void ChromeImporter::read_fact(const std::string& path) {
  if (scanner_.peek() == '{') {
    scanner_.take('{');
    if (scanner_.take('}')) return;
    do {
      const auto key = scanner_.string();
      if (!key || !scanner_.take(':')) return;
      if (path.find('.') == std::string::npos) {
        read_fact(path + "." + *key);
      } else if (!scanner_.skip()) {
        return;
      }
    } while (scanner_.take(','));
    scanner_.take('}');
    return;
  }
  const auto value = scalar();
  if (value && value->size() <= kLongestFact && trace_.facts.size() < kMostFacts) trace_.facts[path] = *value;
}

void ChromeImporter::read_top_object() {
  scanner_.take('{');
  if (scanner_.take('}')) return;
  do {
    const auto key = scanner_.string();
    if (!key || !scanner_.take(':')) break;
    if (*key == "traceEvents" && scanner_.peek() == '[')
      read_list();
    else
      read_fact(*key);
  } while (scanner_.take(','));
  if (!scanner_.take('}') && !trace_.truncated) {
    trace_.truncated = true;
    complaints_.add("the object around the events has no end: the file is cut off");
  }
}

SpanKind span_kind(const std::string& category, std::string_view name) {
  if (name.rfind("ProfilerStep#", 0) == 0) return SpanKind::kAnnotation;  // an operator to old profilers
  if (category == "cpu_op" || category == "operator" || category == "op") return SpanKind::kOperator;
  if (category.ends_with("runtime") || category.ends_with("driver") || category == "wait") return SpanKind::kRuntime;
  if (category.ends_with("user_annotation") || category == "trace" || category == "step" || category == "phase")
    return SpanKind::kAnnotation;
  if (category == "python_function") return SpanKind::kFunction;
  return SpanKind::kOther;
}

std::optional<DeviceOpKind> device_op_kind(const std::string& category) {
  if (category == "kernel" || category == "device_op") return DeviceOpKind::kKernel;
  if (category == "gpu_memcpy" || category == "memcpy") return DeviceOpKind::kCopy;
  if (category == "gpu_memset" || category == "memset") return DeviceOpKind::kSet;
  if (category == "cuda_sync") return DeviceOpKind::kSync;
  return std::nullopt;
}

bool ChromeImporter::take_device_op(const Event& e, int64_t end) {
  const auto kind = device_op_kind(lower(e.category));
  if (!kind) return false;
  DeviceOp op;
  op.begin = *e.time, op.end = end, op.name = trace_.names.id(e.name), op.kind = *kind;
  op.track = track(e.process, e.thread);
  op.first_arg = e.first_arg, op.args = e.args;
  op.correlation = integer(arg(e, "correlation"), -1), op.bytes = integer(arg(e, "bytes"), -1);
  Track& t = trace_.tracks[op.track];
  t.kind = TrackKind::kDevice;
  t.device = static_cast<int>(integer(arg(e, "device"), integer(e.process, 0)));
  t.stream = static_cast<int>(integer(arg(e, "stream"), integer(e.thread, 0)));
  trace_.device_ops.push_back(op);
  return true;
}

// Lathe's own: a wait names the thread that held the lock.
bool ChromeImporter::take_lock(const Event& e, int64_t end) {
  const bool wait = e.category == "lock_wait";
  if (!wait && e.category != "lock_hold") return false;
  LockInterval l;
  l.begin = *e.time, l.end = end, l.lock = trace_.names.id(e.name), l.wait = wait;
  l.track = track(e.process, std::string(wait ? e.thread : std::string(arg(e, "tid"))));
  const std::string_view holder = arg(e, "holder");
  if (wait && !holder.empty()) holders_.emplace_back(trace_.locks.size(), std::string(holder));
  trace_.locks.push_back(l);
  return true;
}

void ChromeImporter::take_complete(const Event& e, int64_t end, bool open) {
  last_time_ = std::max(last_time_, end);
  if (take_device_op(e, end)) return;
  const bool lock = take_lock(e, end);
  Span s;
  s.begin = *e.time, s.end = end, s.open = open;
  s.name = trace_.names.id(lock ? "wait for lock " + e.name : e.name), s.category = trace_.names.id(e.category);
  const std::string category = lower(e.category);
  s.kind = lock ? SpanKind::kRuntime : span_kind(category, e.name);
  pytorch_ += category == "cpu_op" || category == "operator";
  s.track = track(e.process, e.thread);
  s.first_arg = e.first_arg, s.args = e.args;
  s.correlation = integer(arg(e, "correlation"), -1);
  trace_.spans.push_back(s);
}

void ChromeImporter::take_metadata(const Event& e) {
  const std::string_view name = arg(e, "name");
  if (name.empty()) return;
  if (e.name == "process_name") process_names_[e.process] = trace_.names.id(name);
  if (e.name == "thread_name") trace_.tracks[track(e.process, e.thread)].name = trace_.names.id(name);
}

void ChromeImporter::take_counter(const Event& e) {
  for (uint32_t i = e.first_arg; i < e.first_arg + e.args; ++i) {
    const std::string& text = trace_.text(trace_.args[i].value);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str()) continue;
    const std::string& series = trace_.text(trace_.args[i].key);
    const std::string full = series == "value" || series == e.name ? e.name : e.name + "." + series;
    trace_.counters.push_back({*e.time, track(e.process, e.thread), trace_.names.id(full), value});
  }
}

void ChromeImporter::take_event(Event& e) {
  if (e.phase == "M") return take_metadata(e);
  if (!e.time)
    return complaints_.add(e.bad_time ? "an event's ts isn't a number and was left out"
                                      : "an event without ts was left out");
  if (!fence_.admits(*e.time, *e.time))
    return complaints_.add("an event a year or more away from the first was left out");
  last_time_ = std::max(last_time_, *e.time);
  if (e.phase == "X") {
    if (e.bad_time) return complaints_.add("an event's dur isn't a number and was left out");
    if (!e.duration) {
      begins_and_ends_.push_back({e, track(e.process, e.thread)});  // begun, and never ended
      return;
    }
    if (*e.duration < 0) return complaints_.add("an event with negative dur was left out");
    if (*e.duration > INT64_MAX / 2 || !fence_.admits(*e.time, *e.time + *e.duration))
      return complaints_.add("an event a year or more away from the first was left out");
    return take_complete(e, *e.time + *e.duration, false);
  }
  if (e.phase == "B" || e.phase == "E") return begins_and_ends_.push_back({e, track(e.process, e.thread)});
  if (e.phase == "C") return take_counter(e);
  if (e.phase == "b" || e.phase == "e" || e.phase == "S" || e.phase == "F") return async_.push_back({e, 0});
  if (e.phase == "s" || e.phase == "f" || e.phase == "t") return flows_.push_back({e, track(e.process, e.thread)});
}

// By time, and in the file's order at equal times, so that files out of order are read as if they were in order.
void sort_by_time(auto& marks) {
  std::stable_sort(marks.begin(), marks.end(),
                   [](const auto& a, const auto& b) { return *a.event.time < *b.event.time; });
}

void ChromeImporter::join_begins_and_ends() {
  sort_by_time(begins_and_ends_);
  std::vector<std::vector<Event*>> open(trace_.tracks.size());
  const auto close = [&](std::vector<Event*>& stack, int64_t time, bool unfinished) {
    take_complete(*stack.back(), time, unfinished);
    stack.pop_back();
  };
  for (Mark& mark : begins_and_ends_) {
    std::vector<Event*>& stack = open[mark.track];
    Event& e = mark.event;
    if (e.phase != "E") {
      stack.push_back(&e);
      continue;
    }
    // An end that names its span ends what is still open inside, too.
    size_t at = stack.size();
    if (!e.name.empty()) {
      while (at > 0 && stack[at - 1]->name != e.name) --at;
      if (at == 0) at = stack.empty() || stack.back()->name.empty() ? stack.size() : 0;
    }
    if (at == 0) {
      complaints_.add("an end without a begin was left out");
      continue;
    }
    while (stack.size() > at) {
      complaints_.add("a begin without an end ends with what encloses it");
      close(stack, *e.time, true);
    }
    close(stack, *e.time, false);
  }
  for (auto& stack : open)
    while (!stack.empty()) {
      complaints_.add("a begin without an end lasts to the end of the trace");
      close(stack, std::max(last_time_, *stack.back()->time), true);
    }
}

void ChromeImporter::join_async() {
  sort_by_time(async_);
  std::map<std::string, std::vector<Event*>> open;
  const auto finish = [&](Event& begin, int64_t end, bool unfinished) {
    if (take_lock(begin, end)) return;
    Span s;
    s.begin = *begin.time, s.end = end, s.open = unfinished;
    s.name = trace_.names.id(begin.name), s.category = trace_.names.id(begin.category);
    s.track =
        track(begin.process, "async " + (begin.category.empty() ? begin.name : begin.category), TrackKind::kAsync);
    s.first_arg = begin.first_arg, s.args = begin.args;
    trace_.async_spans.push_back(s);
  };
  for (Mark& mark : async_) {
    Event& e = mark.event;
    auto& stack = open[fmt::format("{}\n{}\n{}", e.process, e.category, e.id)];
    if (e.phase == "b" || e.phase == "S") {
      stack.push_back(&e);
      continue;
    }
    size_t at = stack.size();
    while (at > 0 && !e.name.empty() && stack[at - 1]->name != e.name) --at;
    if (at == 0) {
      complaints_.add("an asynchronous end without a begin was left out");
      continue;
    }
    finish(*stack[at - 1], *e.time, false);
    stack.erase(stack.begin() + static_cast<int64_t>(at) - 1);
  }
  for (auto& [id, stack] : open)
    for (Event* e : stack) {
      complaints_.add("an asynchronous begin without an end lasts to the end of the trace");
      finish(*e, std::max(last_time_, *e->time), true);
    }
}

void ChromeImporter::join_flows() {
  std::map<std::string, const Mark*> begun;
  const auto key = [](const Event& e) { return fmt::format("{}\n{}\n{}", e.category, e.name, e.id); };
  for (const Mark& m : flows_)
    if (m.event.phase == "s") begun.try_emplace(key(m.event), &m);
  for (const Mark& m : flows_) {
    if (m.event.phase == "s") continue;
    const auto from = begun.find(key(m.event));
    if (from == begun.end()) continue;  // profilers end many flows that nobody began
    trace_.flows.push_back(
        {*from->second->event.time, *m.event.time, from->second->track, m.track, trace_.names.id(m.event.name)});
  }
}

Result<Trace> ChromeImporter::run() {
  trace_.clocks = {"the file's"};
  if (scanner_.peek() == '\xef') scanner_.skip();  // a byte order mark
  scanner_.peek() == '[' ? read_list() : read_top_object();
  join_begins_and_ends();
  join_async();
  join_flows();
  if (events_ == 0)
    return corrupt("{}: no trace events found; expected a list of them or an object with \"traceEvents\"", name_);
  for (const auto& [index, holder] : holders_) {
    LockInterval& wait = trace_.locks[index];
    const auto found = tracks_.find({trace_.text(trace_.tracks[wait.track].process), holder});
    if (found != tracks_.end()) wait.other = found->second;
  }
  for (Track& t : trace_.tracks) {
    const auto named = process_names_.find(trace_.text(t.process));
    if (named != process_names_.end()) t.process_name = named->second;
  }
  const auto fact = [&](const char* name) {
    const auto found = trace_.facts.find(name);
    return found == trace_.facts.end() ? std::string() : found->second;
  };
  trace_.source = fact("otherData.source") == "lathe" ? "lathe" : pytorch_ > 0 ? "pytorch" : "chrome";
  trace_.lost_events = std::max<int64_t>(0, integer(fact("otherData.lost_events"), 0));
  if (const std::string base = fact("baseTimeNanoseconds"); !base.empty())
    trace_.clocks[0] = "the file's, counted from " + base + " ns";
  complaints_.write(trace_);
  trace_.finish();
  return std::move(trace_);
}

}  // namespace

Result<Trace> import_chrome(std::string_view json, const std::string& name) { return ChromeImporter(json, name).run(); }

}  // namespace lathe
