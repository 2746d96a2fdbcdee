#include "feedback/trace_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lathe {

NameId Names::id(std::string_view text) {
  const auto known = ids_.find(text);
  if (known != ids_.end()) return known->second;
  const NameId id = static_cast<NameId>(texts_.size());
  texts_.emplace_back(text);
  ids_.emplace(texts_.back(), id);
  return id;
}

NameId Names::find(std::string_view text) const {
  const auto known = ids_.find(text);
  return known == ids_.end() ? 0 : known->second;
}

std::string Trace::track_title(int index) const {
  const Track& t = tracks[index];
  if (t.kind == TrackKind::kDevice && t.device >= 0) return fmt::format("device {} stream {}", t.device, t.stream);
  const std::string& process = text(t.process_name ? t.process_name : t.process);
  const std::string& thread = text(t.name ? t.name : t.thread);
  return process.empty() || process == thread ? thread : fmt::format("{} / {}", process, thread);
}

std::string_view Trace::arg(uint32_t first, uint32_t count, std::string_view key) const {
  const NameId wanted = names.find(key);
  if (wanted != 0)
    for (uint32_t i = first; i < first + count; ++i)
      if (args[i].key == wanted) return text(args[i].value);
  return {};
}

Interval Trace::window() const {
  Interval w{INT64_MAX, INT64_MIN};
  const auto widen = [&](const auto& rows) {
    for (const auto& r : rows) w.begin = std::min(w.begin, r.begin), w.end = std::max(w.end, r.end);
  };
  widen(spans), widen(async_spans), widen(device_ops), widen(thread_states), widen(locks);
  return w.begin > w.end ? Interval{} : w;
}

IntervalSet Trace::device_busy(int device) const {
  std::vector<Interval> busy;
  for (const DeviceOp& op : device_ops)
    if (op.is_work() && tracks[op.track].device == device) busy.push_back({op.begin, op.end});
  return IntervalSet(std::move(busy));
}

std::vector<int> Trace::devices() const {
  std::set<int> found;
  for (const DeviceOp& op : device_ops)
    if (op.is_work()) found.insert(tracks[op.track].device);
  return {found.begin(), found.end()};
}

void Trace::find_parents() {
  std::vector<std::vector<int>> open(tracks.size());
  for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
    std::vector<int>& stack = open[spans[i].track];
    while (!stack.empty() && spans[stack.back()].end <= spans[i].begin) stack.pop_back();
    spans[i].parent = stack.empty() ? -1 : stack.back();
    stack.push_back(i);
  }
}

void Trace::link_launches() {
  std::unordered_map<int64_t, int> launch;
  for (int i = 0; i < static_cast<int>(spans.size()); ++i)
    if (spans[i].correlation >= 0 && spans[i].kind == SpanKind::kRuntime) launch.try_emplace(spans[i].correlation, i);
  for (DeviceOp& op : device_ops) {
    const auto found = launch.find(op.correlation);
    op.launch = op.correlation < 0 || found == launch.end() ? -1 : found->second;
  }
}

void Trace::place_locks() {
  for (LockInterval& l : locks) {
    const int own = innermost_span(*this, l.track, l.begin);
    l.span = own < 0 ? 0 : spans[own].name;
  }
  // Holds of one lock by one track don't overlap: the last one that began is the one.
  std::map<std::pair<NameId, int>, std::vector<int>> holds;
  for (int i = 0; i < static_cast<int>(locks.size()); ++i)
    if (!locks[i].wait) holds[{locks[i].lock, locks[i].track}].push_back(i);
  for (LockInterval& l : locks) {
    const auto found = l.wait && l.other >= 0 ? holds.find({l.lock, l.other}) : holds.end();
    if (found == holds.end()) continue;
    const auto after = std::upper_bound(found->second.begin(), found->second.end(), l.begin,
                                        [this](int64_t t, int hold) { return t < locks[hold].begin; });
    if (after != found->second.begin() && locks[*std::prev(after)].end > l.begin)
      l.other_span = locks[*std::prev(after)].span;
  }
}

namespace {

int depth_of(const Span& s) {
  switch (s.kind) {
    case SpanKind::kAnnotation:
      return 0;
    case SpanKind::kFunction:
      return 1;
    case SpanKind::kOperator:
      return 2;
    case SpanKind::kOther:
      return 3;
    case SpanKind::kRuntime:
      return 4;
  }
  return 3;
}

}  // namespace

void Trace::finish() {
  const auto by_begin = [](auto& rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;  // the outer one first
    });
  };
  // Of two with the same begin and end, the one that says less of what was done is outside.
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return depth_of(a) < depth_of(b); });
  by_begin(spans), by_begin(async_spans), by_begin(device_ops), by_begin(thread_states), by_begin(locks);
  std::stable_sort(counters.begin(), counters.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  find_parents();
  link_launches();
  place_locks();
}

Trace part_of(const Trace& trace, Interval window) {
  Trace part = trace;
  const auto inside = [&](int64_t time) { return time >= window.begin && time < window.end; };
  const auto keep = [&](auto& rows) { std::erase_if(rows, [&](const auto& row) { return !inside(row.begin); }); };
  const bool launches =
      std::any_of(trace.device_ops.begin(), trace.device_ops.end(), [](const DeviceOp& op) { return op.launch >= 0; });
  std::erase_if(part.device_ops, [&](const DeviceOp& op) {
    return launches ? op.launch < 0 || !inside(trace.spans[op.launch].begin) : !inside(op.begin);
  });
  keep(part.spans), keep(part.async_spans), keep(part.thread_states), keep(part.locks);
  std::erase_if(part.flows, [&](const Flow& f) { return !inside(f.from_time); });
  std::erase_if(part.counters, [&](const CounterSample& c) { return !inside(c.time); });
  std::erase_if(part.samples, [&](const SampleStack& s) { return !inside(s.time); });
  part.finish();
  return part;
}

int innermost_span(const Trace& trace, int track, int64_t time) {
  auto after = std::upper_bound(trace.spans.begin(), trace.spans.end(), time,
                                [](int64_t t, const Span& s) { return t < s.begin; });
  int at = static_cast<int>(after - trace.spans.begin()) - 1;
  while (at >= 0 && trace.spans[at].track != track) --at;
  while (at >= 0 && trace.spans[at].end <= time) at = trace.spans[at].parent;
  return at;
}

}  // namespace lathe
