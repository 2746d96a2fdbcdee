#include "feedback/unit_partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "feedback/critical_path.h"

namespace lathe {

namespace {

// A stretch of one thread with what ran innermost; span -1: nothing did.
struct Segment {
  Interval time;
  int span;
};

class Partition {
 public:
  explicit Partition(const Trace& trace) : t_(trace), by_track_(trace.tracks.size()) {
    for (int i = 0; i < static_cast<int>(t_.spans.size()); ++i)
      if (t_.tracks[t_.spans[i].track].kind == TrackKind::kThread) by_track_[t_.spans[i].track].push_back(i);
    IntervalSet busy;
    for (int device : t_.devices()) busy = busy.united(t_.device_busy(device));
    device_busy_ = busy;
    has_device_ = !busy.empty();
  }

  std::map<std::string, std::vector<Unit>> units(const std::string& within);

 private:
  struct Frame {  // of a unit
    std::string phase;
    Interval window;
    int track, span;  // the span that makes it one
  };

  std::vector<Frame> find_frames(const std::string& within) const;
  std::vector<Segment> segments(int track, Interval window) const;
  Unit cut(const Frame& frame) const;
  void give(const Frame& frame, const Segment& s, Unit& unit) const;
  void give_uncovered(const Frame& frame, Interval time, Unit& unit) const;
  std::vector<std::string> address(const std::string& phase, int span) const;
  int busiest_other_thread(int track, Interval time) const;

  const Trace& t_;
  std::vector<std::vector<int>> by_track_;
  IntervalSet device_busy_;
  bool has_device_ = false;
};

bool is_marker(const Trace& t, const Span& s) {
  return s.kind == SpanKind::kAnnotation && !t.text(s.name).ends_with(" layer");
}

// In order: Lathe's phases, then a profiler's steps. Decode lasts until the next step begins: what lies between them is
// part of the time per token.
std::vector<Partition::Frame> Partition::find_frames(const std::string& within) const {
  std::vector<Frame> frames;
  const auto add = [&](const std::string& phase, int i) {
    const Span& s = t_.spans[i];
    frames.push_back({phase, {s.begin, s.end}, s.track, i});
  };
  const int count = static_cast<int>(t_.spans.size());
  if (!within.empty()) {
    for (int i = 0; i < count; ++i)
      if (t_.text(t_.spans[i].name).find(within) != std::string::npos) add(within, i);
    return frames;
  }
  const NameId whole_prefill = t_.names.find("prefill");
  const bool has_prefill = std::any_of(t_.spans.begin(), t_.spans.end(), [&](const Span& s) {
    return whole_prefill != 0 && s.name == whole_prefill && s.kind == SpanKind::kAnnotation;
  });
  int last_decode = -1;  // frame
  for (int i = 0; i < count; ++i) {
    const Span& s = t_.spans[i];
    if (s.kind != SpanKind::kAnnotation) continue;
    const std::string& name = t_.text(s.name);
    if (name == "decode step") {
      if (last_decode >= 0 && frames[last_decode].track == s.track) {
        const Span& enclosing = t_.spans[frames[last_decode].span];
        if (enclosing.parent == s.parent && enclosing.parent >= 0) frames[last_decode].window.end = s.begin;
      }
      last_decode = static_cast<int>(frames.size());
      add("decode", i);
    } else if (name == "mixed step") {
      last_decode = -1;
      add("mixed", i);
    } else if (name == (has_prefill ? "prefill" : "prefill step")) {
      last_decode = -1;
      add("prefill", i);
    } else if (name.starts_with("ProfilerStep#")) {
      add("ProfilerStep", i);
    }
  }
  // A profiler repeats its steps on the device's side, where nothing drives.
  std::erase_if(frames, [&](const Frame& f) { return t_.tracks[f.track].kind != TrackKind::kThread; });
  if (frames.empty() && !t_.spans.empty()) {
    std::map<int, int64_t> busy;  // the thread with most to say drives
    for (const Span& s : t_.spans)
      if (s.parent < 0 && t_.tracks[s.track].kind == TrackKind::kThread) busy[s.track] += s.length();
    if (busy.empty()) return frames;
    const auto driver =
        std::max_element(busy.begin(), busy.end(), [](auto& a, auto& b) { return a.second < b.second; });
    frames.push_back({"all", t_.window(), driver->first, -1});
  }
  return frames;
}

std::vector<Segment> Partition::segments(int track, Interval window) const {
  std::vector<Segment> found;
  const std::vector<int>& own = by_track_[track];
  auto next = std::upper_bound(own.begin(), own.end(), window.begin,
                               [this](int64_t t, int i) { return t < t_.spans[i].begin; });
  std::vector<int> open;
  if (next != own.begin())
    for (int i = *std::prev(next); i >= 0; i = t_.spans[i].parent)
      if (t_.spans[i].end > window.begin) open.insert(open.begin(), i);
  int64_t at = window.begin;
  const auto until = [&](int64_t time) {
    time = std::min(time, window.end);
    if (time > at) found.push_back({{at, time}, open.empty() ? -1 : open.back()}), at = time;
  };
  const auto close = [&](int64_t time) {
    while (!open.empty() && t_.spans[open.back()].end <= time) until(t_.spans[open.back()].end), open.pop_back();
    until(time);
  };
  for (; next != own.end() && t_.spans[*next].begin < window.end; ++next) {
    close(t_.spans[*next].begin);
    open.push_back(*next);
  }
  close(window.end);
  return found;
}

// "Optimizer.step#SGD.step" and "enumerate(DataLoader)#..." are one operator however they are made.
std::string plain_name(const std::string& name) { return name.substr(0, name.find('#')); }

bool is_wait(const std::string& name) {
  return name.starts_with("wait for lock ") || name.ends_with(" wait") || waits_for_device(name);
}

std::vector<std::string> Partition::address(const std::string& phase, int span) const {
  std::string layer, op, variant, shape, what;
  const Span& innermost = t_.spans[span];
  for (int i = span; i >= 0; i = t_.spans[i].parent) {
    const Span& s = t_.spans[i];
    const std::string& name = t_.text(s.name);
    if (s.kind == SpanKind::kAnnotation && name.ends_with(" layer")) layer = name;
    if (s.kind == SpanKind::kOperator) {  // the outermost one says what was asked for
      op = plain_name(name), variant = t_.arg(s, "variant");
      const std::string_view rows = t_.arg(s, "rows");
      shape = rows.empty() ? "" : fmt::format("rows={}", rows);
    }
  }
  const std::string own = plain_name(t_.text(innermost.name));
  if (op.empty()) op = own;
  what = own == op ? (innermost.kind == SpanKind::kOperator ? "compute" : "") : is_wait(own) ? own : "in " + own;
  std::vector<std::string> path = {phase};
  for (std::string* part : {&layer, &op, &variant, &shape, &what})
    if (!part->empty()) path.push_back(std::move(*part));
  return path;
}

int Partition::busiest_other_thread(int track, Interval time) const {
  int best = -1;
  int64_t most = 0;
  for (int other = 0; other < static_cast<int>(by_track_.size()); ++other) {
    if (other == track || by_track_[other].empty() || t_.tracks[other].process != t_.tracks[track].process) continue;
    int64_t busy = 0;
    for (const Segment& s : segments(other, time))
      if (s.span >= 0 && !is_marker(t_, t_.spans[s.span])) busy += s.time.length();
    if (busy > most) most = busy, best = other;
  }
  return best;
}

void Partition::give_uncovered(const Frame& frame, Interval time, Unit& unit) const {
  const auto add = [&](std::vector<std::string> path, int64_t ns) {
    if (ns <= 0) return;
    AddressTime& part = unit.parts[std::move(path)];
    part.ns += ns, ++part.calls;
  };
  const auto leave = [&](Interval rest) {
    const int64_t busy = has_device_ ? device_busy_.overlap(IntervalSet({rest})) : 0;
    add({frame.phase, "device busy, host silent"}, busy);
    add({frame.phase, kUnexplained}, rest.length() - busy);
  };
  // Another thread of the process works while this one is silent: its time, until it is silent, too.
  const int other = busiest_other_thread(frame.track, time);
  if (other < 0) return leave(time);
  for (const Segment& s : segments(other, time)) {
    if (s.span < 0 || is_marker(t_, t_.spans[s.span])) {
      leave(s.time);
      continue;
    }
    std::vector<std::string> path = address(frame.phase, s.span);
    path.insert(path.begin() + 1,
                "thread " + t_.text(t_.tracks[other].name ? t_.tracks[other].name : t_.tracks[other].thread));
    add(std::move(path), s.time.length());
  }
}

void Partition::give(const Frame& frame, const Segment& s, Unit& unit) const {
  if (s.span < 0 || is_marker(t_, t_.spans[s.span])) return give_uncovered(frame, s.time, unit);
  const Span& span = t_.spans[s.span];
  std::vector<std::string> path = address(frame.phase, s.span);
  if (span.kind == SpanKind::kAnnotation)
    path = {frame.phase, t_.text(span.name), kUnexplained};                     // within a layer, between operators
  const int64_t first = span.begin >= s.time.begin && span.begin < s.time.end;  // a call counts where it begins
  if (has_device_ && waits_for_device(t_.text(span.name))) {
    const int64_t busy = device_busy_.overlap(IntervalSet({s.time}));
    std::vector<std::string> idle = path;
    path.push_back("device busy"), idle.push_back("device idle");
    unit.parts[path].ns += busy, unit.parts[path].calls += first;
    if (s.time.length() > busy) unit.parts[idle].ns += s.time.length() - busy;
    return;
  }
  AddressTime& part = unit.parts[path];
  part.ns += s.time.length(), part.calls += first;
}

Unit Partition::cut(const Frame& frame) const {
  Unit unit{frame.window, {}};
  for (const Segment& s : segments(frame.track, frame.window)) give(frame, s, unit);
  return unit;
}

std::map<std::string, std::vector<Unit>> Partition::units(const std::string& within) {
  std::map<std::string, std::vector<Unit>> by_phase;
  for (const Frame& f : find_frames(within))
    if (f.window.length() > 0) by_phase[f.phase].push_back(cut(f));
  return by_phase;
}

}  // namespace

std::map<std::string, std::vector<Unit>> partition_units(const Trace& trace, const std::string& within) {
  return Partition(trace).units(within);
}

}  // namespace lathe
