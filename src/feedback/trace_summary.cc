#include "feedback/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lathe {

namespace {

constexpr const char* kStates[] = {"running", "runnable", "blocked"};

// "op/variant" where the span says which variant ran.
std::string full_name(const Trace& t, const Span& s) {
  const std::string_view variant = t.arg(s, "variant");
  return variant.empty() ? t.text(s.name) : fmt::format("{}/{}", t.text(s.name), variant);
}

std::vector<NameTime> sorted(const std::map<std::string, NameTime>& by_name, int64_t NameTime::* key) {
  std::vector<NameTime> rows;
  for (const auto& [name, row] : by_name) rows.push_back(row), rows.back().name = name;
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return a.*key > b.*key; });
  return rows;
}

void add(NameTime& row, int64_t total, int64_t self) { ++row.count, row.total_ns += total, row.self_ns += self; }

bool is_step(const Trace& t, const Span& s) {
  const std::string& name = t.text(s.name);
  const size_t mark = name.rfind('#');
  return s.kind == SpanKind::kAnnotation && mark != std::string::npos && mark + 1 < name.size() &&
         name.find_first_not_of("0123456789", mark + 1) == std::string::npos;
}

// The longest single call that blocks inside a hold, if it makes up half of it.
std::string blocking_call_in(const Trace& t, const LockInterval& hold) {
  std::string found;
  int64_t longest = hold.length() / 2;
  auto s = std::lower_bound(t.spans.begin(), t.spans.end(), hold.begin,
                            [](const Span& span, int64_t time) { return span.begin < time; });
  for (; s != t.spans.end() && s->begin < hold.end; ++s)
    if (s->track == hold.track && s->kind == SpanKind::kRuntime && s->end <= hold.end && s->length() > longest)
      longest = s->length(), found = t.text(s->name);
  return found;
}

}  // namespace

std::vector<int64_t> self_times(const Trace& trace) {
  std::vector<int64_t> self(trace.spans.size());
  for (size_t i = 0; i < self.size(); ++i) self[i] = trace.spans[i].length();
  for (const Span& s : trace.spans)
    if (s.parent >= 0) {
      const Span& p = trace.spans[s.parent];
      self[s.parent] -= std::max<int64_t>(0, std::min(s.end, p.end) - s.begin);
    }
  return self;
}

std::vector<DeviceTime> device_times(const Trace& trace) {
  std::vector<DeviceTime> rows;
  for (int device : trace.devices()) {
    DeviceTime d;
    d.device = device;
    for (const DeviceOp& op : trace.device_ops) {
      if (trace.tracks[op.track].device != device) continue;
      if (op.kind == DeviceOpKind::kKernel) ++d.kernels, d.kernel_sum_ns += op.length();
      d.copies += op.kind == DeviceOpKind::kCopy, d.sets += op.kind == DeviceOpKind::kSet;
    }
    const IntervalSet busy = trace.device_busy(device);
    const IntervalSet gaps = busy.gaps(busy.hull());
    d.busy_ns = busy.total(), d.extent_ns = busy.hull().length(), d.idle_ns = gaps.total();
    d.gaps = static_cast<int64_t>(gaps.intervals().size());
    for (const Interval& g : gaps.intervals()) d.longest_gap_ns = std::max(d.longest_gap_ns, g.length());
    rows.push_back(d);
  }
  return rows;
}

std::vector<LockTime> lock_times(const Trace& trace) {
  std::map<NameId, std::vector<const LockInterval*>> by_lock;
  for (const LockInterval& l : trace.locks) by_lock[l.lock].push_back(&l);
  std::vector<LockTime> rows;
  for (const auto& [lock, intervals] : by_lock) {
    LockTime row;
    row.lock = trace.text(lock);
    std::vector<Interval> waits;
    std::map<std::string, int64_t> waiters;
    for (const LockInterval* l : intervals) {
      (l->wait ? row.waits : row.holds) += 1;
      (l->wait ? row.wait_ns : row.hold_ns) += l->length();
      if (l->wait) waits.push_back({l->begin, l->end}), waiters[trace.track_title(l->track)] += l->length();
    }
    const IntervalSet waited(waits);
    for (const LockInterval* l : intervals) {
      if (l->wait || l->length() <= row.longest_contended_hold_ns) continue;
      if (waited.overlap(IntervalSet({{l->begin, l->end}})) == 0) continue;
      row.longest_contended_hold_ns = l->length();
      row.holder = trace.track_title(l->track), row.holder_span = trace.text(l->span);
      row.held_across = blocking_call_in(trace, *l);
    }
    row.waiters.assign(waiters.begin(), waiters.end());
    std::stable_sort(row.waiters.begin(), row.waiters.end(), [](auto& a, auto& b) { return a.second > b.second; });
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.wait_ns > b.wait_ns; });
  return rows;
}

TraceSummary summarise(const Trace& trace) {
  TraceSummary s;
  s.source = trace.source, s.window = trace.window(), s.lost_events = trace.lost_events, s.warnings = trace.warnings;
  s.host_spans = static_cast<int64_t>(trace.spans.size()), s.device_ops = static_cast<int64_t>(trace.device_ops.size());
  const std::vector<int64_t> self = self_times(trace);
  std::map<std::string, NameTime> operators, kernels, samples, states;
  std::vector<std::vector<Interval>> busy(trace.tracks.size());
  std::vector<int64_t> spans(trace.tracks.size());
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    busy[span.track].push_back({span.begin, span.end}), ++spans[span.track];
    if (is_step(trace, span))
      s.steps.push_back({trace.text(span.name), 1, span.length(), self[i]});
    else
      add(operators[full_name(trace, span)], span.length(), self[i]);
  }
  for (const Span& span : trace.async_spans) busy[span.track].push_back({span.begin, span.end}), ++spans[span.track];
  for (const DeviceOp& op : trace.device_ops) {
    if (!op.is_work()) continue;
    add(kernels[trace.text(op.name)], op.length(), op.length());
    busy[op.track].push_back({op.begin, op.end}), ++spans[op.track];
  }
  for (const SampleStack& sample : trace.samples) {
    const std::string& stack = trace.text(sample.stack);
    const size_t last = stack.rfind(';');
    add(samples[stack.substr(last == std::string::npos ? 0 : last + 1)], sample.weight, sample.weight);
  }
  for (const ThreadState& state : trace.thread_states)
    add(states[fmt::format("{} {}", trace.track_title(state.track), kStates[static_cast<int>(state.kind)])],
        state.end - state.begin, state.end - state.begin);
  for (size_t t = 0; t < busy.size(); ++t)
    if (spans[t] > 0)
      s.tracks.push_back({trace.track_title(static_cast<int>(t)), IntervalSet(std::move(busy[t])).total(), spans[t]});
  std::stable_sort(s.tracks.begin(), s.tracks.end(),
                   [](const auto& a, const auto& b) { return a.busy_ns > b.busy_ns; });
  s.operators = sorted(operators, &NameTime::self_ns), s.kernels = sorted(kernels, &NameTime::total_ns);
  s.samples = sorted(samples, &NameTime::total_ns), s.states = sorted(states, &NameTime::total_ns);
  s.devices = device_times(trace), s.locks = lock_times(trace);
  return s;
}

std::string duration_text(int64_t ns) {
  const double us = static_cast<double>(ns) / 1e3, size = std::abs(us);
  if (size >= 1e7) return fmt::format("{:.1f} s", us / 1e6);
  if (size >= 1e6) return fmt::format("{:.3f} s", us / 1e6);
  if (size >= 1e5) return fmt::format("{:.0f} ms", us / 1e3);
  if (size >= 1e4) return fmt::format("{:.1f} ms", us / 1e3);
  if (size >= 1e3) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.{}f} us", us, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

std::string shortened(const std::string& name, size_t width) {
  if (name.size() <= width) return name;
  const size_t tail = (width - 3) / 3, head = width - 3 - tail;
  return name.substr(0, head) + "..." + name.substr(name.size() - tail);
}

namespace {

constexpr size_t kNameWidth = 58;

void list(std::string& out, const char* title, const std::vector<NameTime>& rows, int limit, bool self, bool times) {
  if (rows.empty()) return;
  out += fmt::format("\n{:<{}} {:>8} {:>10}{}\n", title, kNameWidth, "calls", times ? "total" : "weight",
                     self ? "       self" : "");
  for (int i = 0; i < static_cast<int>(rows.size()) && i < limit; ++i) {
    const NameTime& r = rows[i];
    out += fmt::format("{:<{}} {:>8} {:>10}", shortened(r.name, kNameWidth), kNameWidth, r.count,
                       times ? duration_text(r.total_ns) : std::to_string(r.total_ns));
    out += self ? fmt::format(" {:>10}\n", duration_text(r.self_ns)) : "\n";
  }
  if (static_cast<int>(rows.size()) > limit) out += fmt::format("... and {} more\n", rows.size() - limit);
}

nlohmann::json us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

nlohmann::json names_json(const std::vector<NameTime>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const NameTime& r : rows)
    all.push_back({{"name", r.name}, {"count", r.count}, {"total_us", us(r.total_ns)}, {"self_us", us(r.self_ns)}});
  return all;
}

}  // namespace

std::string to_text(const TraceSummary& s, int rows) {
  std::string out = fmt::format("{} trace of {}: {} spans on threads, {} device operations\n", s.source,
                                duration_text(s.window.length()), s.host_spans, s.device_ops);
  for (const std::string& w : s.warnings) out += fmt::format("warning: {}\n", w);
  if (s.lost_events > 0) out += fmt::format("{} events were lost: times are lower bounds\n", s.lost_events);
  list(out, "steps", s.steps, rows, false, true);
  list(out, "operators and calls", s.operators, rows, true, true);
  list(out, "kernels and copies", s.kernels, rows, false, true);
  if (!s.tracks.empty())
    out += fmt::format("\n{:<{}} {:>8} {:>10}\n", "threads and queues", kNameWidth, "spans", "busy");
  for (int i = 0; i < static_cast<int>(s.tracks.size()) && i < rows; ++i)
    out += fmt::format("{:<{}} {:>8} {:>10}\n", shortened(s.tracks[i].track, kNameWidth), kNameWidth, s.tracks[i].spans,
                       duration_text(s.tracks[i].busy_ns));
  for (const DeviceTime& d : s.devices)
    out += fmt::format("\ndevice {}: busy {} of {} ({:.2f} % idle), {} kernels of {} in all, {} copies, {} sets\n",
                       d.device, duration_text(d.busy_ns), duration_text(d.extent_ns),
                       d.extent_ns > 0 ? 100.0 * static_cast<double>(d.idle_ns) / static_cast<double>(d.extent_ns) : 0,
                       d.kernels, duration_text(d.kernel_sum_ns), d.copies, d.sets);
  for (const LockTime& l : s.locks) {
    out += fmt::format("\nlock {}: held {} times for {}; waited for {} times, {} in all\n", l.lock, l.holds,
                       duration_text(l.hold_ns), l.waits, duration_text(l.wait_ns));
    for (const auto& [thread, ns] : l.waiters) out += fmt::format("  {} waited {}\n", thread, duration_text(ns));
    if (!l.holder.empty())
      out +=
          fmt::format("  longest hold while others waited: {} by {}{}{}\n", duration_text(l.longest_contended_hold_ns),
                      l.holder, l.holder_span.empty() ? "" : " in " + l.holder_span,
                      l.held_across.empty() ? "" : ", across " + l.held_across);
  }
  list(out, "thread states", s.states, rows, false, true);
  list(out, "sampled frames", s.samples, rows, false, false);
  return out;
}

nlohmann::json to_json(const TraceSummary& s) {
  nlohmann::json j = {{"schema", 1},
                      {"source", s.source},
                      {"window_us", us(s.window.length())},
                      {"lost_events", s.lost_events},
                      {"lower_bounds", s.lost_events > 0},
                      {"host_spans", s.host_spans},
                      {"device_ops", s.device_ops},
                      {"warnings", s.warnings},
                      {"steps", names_json(s.steps)},
                      {"operators", names_json(s.operators)},
                      {"kernels", names_json(s.kernels)},
                      {"thread_states", names_json(s.states)}};
  j["samples"] = nlohmann::json::array();
  for (const NameTime& r : s.samples)
    j["samples"].push_back({{"frame", r.name}, {"count", r.count}, {"weight", r.total_ns}});
  j["tracks"] = nlohmann::json::array(), j["devices"] = nlohmann::json::array(), j["locks"] = nlohmann::json::array();
  for (const TrackTime& t : s.tracks)
    j["tracks"].push_back({{"track", t.track}, {"spans", t.spans}, {"busy_us", us(t.busy_ns)}});
  for (const DeviceTime& d : s.devices)
    j["devices"].push_back({{"device", d.device},
                            {"kernels", d.kernels},
                            {"kernel_sum_us", us(d.kernel_sum_ns)},
                            {"copies", d.copies},
                            {"sets", d.sets},
                            {"busy_us", us(d.busy_ns)},
                            {"extent_us", us(d.extent_ns)},
                            {"idle_us", us(d.idle_ns)},
                            {"gaps", d.gaps},
                            {"longest_gap_us", us(d.longest_gap_ns)}});
  for (const LockTime& l : s.locks) {
    nlohmann::json waiters = nlohmann::json::array();
    for (const auto& [thread, ns] : l.waiters) waiters.push_back({{"thread", thread}, {"wait_us", us(ns)}});
    j["locks"].push_back({{"lock", l.lock},
                          {"holds", l.holds},
                          {"hold_us", us(l.hold_ns)},
                          {"waits", l.waits},
                          {"wait_us", us(l.wait_ns)},
                          {"longest_contended_hold_us", us(l.longest_contended_hold_ns)},
                          {"holder", l.holder},
                          {"holder_span", l.holder_span},
                          {"held_across", l.held_across},
                          {"waiters", waiters}});
  }
  return j;
}

}  // namespace lathe
