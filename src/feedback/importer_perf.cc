#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "feedback/importer.h"

// Text of `perf script`: sampled stacks, and scheduler events, from which the states of threads follow. And collapsed
// stacks, one "frame;frame;frame count" a line.
namespace lathe {

namespace {

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

std::optional<int64_t> whole_number(std::string_view s) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return value;
}

// Seconds with a point, as perf prints them, to ns.
std::optional<int64_t> perf_time(std::string_view s) {
  const size_t point = s.find('.');
  if (point == std::string_view::npos || point + 1 == s.size() || s.size() - point > 10) return std::nullopt;
  const auto whole = whole_number(s.substr(0, point));
  auto part = whole_number(s.substr(point + 1));
  if (!whole || !part || *whole < 0 || *part < 0 || *whole > 4000000000) return std::nullopt;
  for (size_t digits = s.size() - point - 1; digits < 9; ++digits) *part *= 10;
  return *whole * 1000000000 + *part;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  while (!(line = trimmed(line)).empty()) {
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    found.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return found;
}

struct Header {
  std::string command;
  int64_t process = -1, thread = -1, time = -1, period = 1;
  std::string_view event, rest;
};

// "command 12/34 [001] 5678.901234: 250000 cycles:u: rest", of which process, processor and period may be missing.
std::optional<Header> header(std::string_view line) {
  const auto all = words(line);
  Header h;
  size_t at = 0;
  for (; at < all.size(); ++at) {
    std::string_view w = all[at];
    if (!w.ends_with(':')) continue;
    w.remove_suffix(1);
    const auto time = perf_time(w);
    if (!time) continue;
    h.time = *time;
    break;
  }
  if (h.time < 0 || at == 0) return std::nullopt;
  size_t id = at - 1;
  if (all[id].starts_with('[') && id > 0) --id;
  std::string_view ids = all[id];
  const size_t slash = ids.find('/');
  const auto thread = whole_number(slash == std::string_view::npos ? ids : ids.substr(slash + 1));
  if (!thread || id == 0) return std::nullopt;
  h.thread = *thread;
  h.process = slash == std::string_view::npos ? *thread : whole_number(ids.substr(0, slash)).value_or(*thread);
  for (size_t i = 0; i < id; ++i) h.command += (i ? " " : "") + std::string(all[i]);
  size_t next = at + 1;
  if (next < all.size())
    if (const auto period = whole_number(all[next])) h.period = *period, ++next;
  if (next < all.size()) {
    h.event = all[next];
    h.rest = std::string_view(all[next].data() + all[next].size(), line.data() + line.size());
  }
  return h;
}

// "prev_pid=12" of a scheduler event's text.
std::string_view field(std::string_view rest, std::string_view key) {
  for (size_t at = rest.find(key); at != std::string_view::npos; at = rest.find(key, at + 1)) {
    const size_t value = at + key.size();
    if ((at > 0 && rest[at - 1] != ' ') || value >= rest.size() || rest[value] != '=') continue;
    return rest.substr(value + 1, rest.find(' ', value) - value - 1);
  }
  return {};
}

class PerfImporter {
 public:
  explicit PerfImporter(const std::string& name) : name_(name) {}
  Result<Trace> run(std::string_view text);

 private:
  struct Thread {
    int64_t since = -1;  // the state began
    ThreadStateKind state = ThreadStateKind::kRunning;
  };

  int track(int64_t process, int64_t thread, std::string_view command);
  void enter(int64_t thread, std::string_view command, int64_t time, ThreadStateKind state);
  void take_scheduling(const Header& h);
  void finish_sample();

  std::string name_;
  Trace trace_;
  TraceComplaints complaints_;
  TimeFence fence_;
  std::map<int64_t, int> tracks_;
  std::map<int64_t, Thread> threads_;
  std::optional<SampleStack> sample_;
  std::vector<std::string> frames_;  // innermost first, as perf prints them
};

int PerfImporter::track(int64_t process, int64_t thread, std::string_view command) {
  const auto [at, fresh] = tracks_.try_emplace(thread, static_cast<int>(trace_.tracks.size()));
  if (fresh) {
    Track t;
    t.process = trace_.names.id(std::to_string(process)), t.thread = trace_.names.id(std::to_string(thread));
    t.process_name = trace_.names.id(command);
    trace_.tracks.push_back(t);
  }
  return at->second;
}

void PerfImporter::enter(int64_t thread, std::string_view command, int64_t time, ThreadStateKind state) {
  if (thread == 0) return;  // the idle task is nobody's thread
  Thread& t = threads_[thread];
  const int row = track(thread, thread, command);
  if (!fence_.admits(time, time)) return complaints_.add("an event a year or more away from the first was left out");
  if (t.since >= 0 && time > t.since) trace_.thread_states.push_back({t.since, time, row, t.state, 0});
  if (t.since >= 0 && time < t.since) return complaints_.add("scheduler events out of order were left out");
  t = {time, state};
}

void PerfImporter::take_scheduling(const Header& h) {
  if (h.event.find("sched_switch") != std::string_view::npos) {
    const auto previous = whole_number(field(h.rest, "prev_pid")), next = whole_number(field(h.rest, "next_pid"));
    const std::string_view state = field(h.rest, "prev_state");
    if (!previous || !next) return complaints_.add("a sched_switch without prev_pid or next_pid was left out");
    enter(*previous, field(h.rest, "prev_comm"), h.time,
          state.starts_with('R') ? ThreadStateKind::kRunnable : ThreadStateKind::kBlocked);
    enter(*next, field(h.rest, "next_comm"), h.time, ThreadStateKind::kRunning);
  } else {
    const auto woken = whole_number(field(h.rest, "pid"));
    if (!woken) return complaints_.add("a sched_wakeup without pid was left out");
    const auto known = threads_.find(*woken);
    if (known == threads_.end() || known->second.state == ThreadStateKind::kBlocked)
      enter(*woken, field(h.rest, "comm"), h.time, ThreadStateKind::kRunnable);
  }
}

void PerfImporter::finish_sample() {
  if (!sample_) return;
  std::string stack;
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) stack += (stack.empty() ? "" : ";") + *frame;
  sample_->stack = trace_.names.id(stack);
  trace_.samples.push_back(*sample_);
  sample_.reset();
  frames_.clear();
}

Result<Trace> PerfImporter::run(std::string_view text) {
  trace_.source = "perf";
  trace_.clocks = {"the kernel's monotonic clock, as perf printed it"};
  if (!text.empty() && !text.ends_with('\n')) {
    trace_.truncated = true;
    complaints_.add("the last line is cut off");
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end), content = trimmed(line);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (content.empty()) {
      finish_sample();
    } else if (content[0] == '#') {
      continue;
    } else if (const auto h = header(line)) {
      finish_sample();
      if (h->event.find("sched_switch") != std::string_view::npos ||
          h->event.find("sched_wak") != std::string_view::npos)
        take_scheduling(*h);
      else
        sample_ = SampleStack{h->time, track(h->process, h->thread, h->command), 0, h->period};
    } else if (sample_ && (line[0] == ' ' || line[0] == '\t')) {
      // "ffffffff81 symbol+0x12 (module)"
      std::string_view frame = content.substr(std::min(content.find(' '), content.size()));
      frame = trimmed(frame.substr(0, frame.rfind(" (")));
      frame = frame.substr(0, frame.rfind("+0x"));
      std::string name(frame.empty() ? content : frame);
      for (char& c : name)
        if (c == ';') c = ':';
      frames_.push_back(std::move(name));
    } else {
      complaints_.add("a line that is neither an event nor a frame was left out");
    }
  }
  finish_sample();
  if (trace_.samples.empty() && trace_.thread_states.empty())
    return corrupt(
        "{}: neither a Chrome or PyTorch trace, an Nsight SQLite export, text of perf script nor collapsed stacks",
        name_);
  complaints_.write(trace_);
  trace_.finish();
  return std::move(trace_);
}

}  // namespace

Result<Trace> import_perf(std::string_view text, const std::string& name) { return PerfImporter(name).run(text); }

Result<Trace> import_collapsed(std::string_view text, const std::string& name) {
  Trace trace;
  TraceComplaints complaints;
  trace.source = "collapsed";
  trace.tracks.push_back({});
  trace.tracks[0].thread = trace.names.id("all threads");
  const bool cut_off = !text.empty() && !text.ends_with('\n');
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find_last_of(' ');
    const auto weight = space == std::string_view::npos ? std::nullopt : whole_number(line.substr(space + 1));
    if (!weight || *weight < 0) {
      complaints.add("a line without a count was left out");
      continue;
    }
    trace.samples.push_back({-1, 0, trace.names.id(trimmed(line.substr(0, space))), *weight});
  }
  if (trace.samples.empty()) return corrupt("{}: no line is a collapsed stack with a count", name);
  if (cut_off) trace.warnings.push_back("the last line has no end; its count may be cut off"), trace.truncated = true;
  complaints.write(trace);
  return trace;
}

}  // namespace lathe
