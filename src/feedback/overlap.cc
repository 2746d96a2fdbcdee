#include "feedback/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lathe {

namespace {

constexpr size_t kMostLanes = 40;          // pairs grow with its square
constexpr size_t kFewestIntervals = 4;     // of a lane: fewer take turns by chance
constexpr double kIdleWorthSaying = 0.05;  // of a device's extent

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// A source of asynchronous work: a device's stream, or the asynchronous spans of one name.
struct Lane {
  std::string name;
  IntervalSet busy;
  int track = -1;  // of a stream
};

std::vector<Lane> lanes_of(const Trace& trace, Interval window) {
  std::map<std::string, std::pair<std::vector<Interval>, int>> by_name;
  for (const DeviceOp& op : trace.device_ops)
    if (op.is_work()) {
      auto& lane = by_name[trace.track_title(op.track)];
      lane.first.push_back({op.begin, op.end}), lane.second = op.track;
    }
  for (const Span& s : trace.async_spans) {
    auto& lane = by_name[trace.text(s.name)];
    lane.first.push_back({s.begin, s.end}), lane.second = -1;
  }
  std::vector<Lane> lanes;
  for (auto& [name, lane] : by_name) {
    Lane l{name, IntervalSet(std::move(lane.first)).clipped(window), lane.second};
    if (!l.busy.empty()) lanes.push_back(std::move(l));
  }
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane& a, const Lane& b) { return a.busy.total() > b.busy.total(); });
  if (lanes.size() > kMostLanes) lanes.resize(kMostLanes);
  return lanes;
}

SetOverlap overlap_of(const Lane& a, const Lane& b) {
  SetOverlap o{a.name, b.name, a.busy.total(), b.busy.total(), a.busy.overlap(b.busy), 0, 0};
  o.either_ns = o.a_ns + o.b_ns - o.both_ns;
  const Interval x = a.busy.hull(), y = b.busy.hull();
  const Interval common{std::max(x.begin, y.begin), std::min(x.end, y.end)};
  if (common.end > common.begin)
    o.expected_ns = static_cast<int64_t>(static_cast<double>(a.busy.clipped(common).total()) *
                                         ratio(b.busy.clipped(common).total(), common.length()));
  return o;
}

int64_t turns(const IntervalSet& a, const IntervalSet& b) {
  int64_t count = 0;
  int last = 0;
  size_t i = 0, j = 0;
  while (i < a.intervals().size() || j < b.intervals().size()) {
    const bool first =
        j == b.intervals().size() || (i < a.intervals().size() && a.intervals()[i].begin <= b.intervals()[j].begin);
    const int now = first ? 1 : 2;
    if (last != 0 && now != last) ++count;
    last = now;
    first ? ++i : ++j;
  }
  return count;
}

// Two lanes that ran in the same stretch of time, each often enough, and together almost never.
bool never_together(const Lane& a, const Lane& b, const SetOverlap& o) {
  const int64_t smaller = std::min(o.a_ns, o.b_ns);
  return a.busy.intervals().size() >= kFewestIntervals && b.busy.intervals().size() >= kFewestIntervals &&
         ratio(o.expected_ns, smaller) > 0.1 && ratio(o.both_ns, smaller) < 0.04 && o.both_ns < o.expected_ns / 4 &&
         turns(a.busy, b.busy) >= static_cast<int64_t>(kFewestIntervals);
}

// A lock that one thread holds while `busy` runs, so that the other lane can't.
void name_lock(const Trace& trace, const Lane& a, const Lane& b, NeverOverlap& pair) {
  std::map<std::pair<NameId, int>, std::vector<Interval>> holds;
  for (const LockInterval& l : trace.locks)
    if (!l.wait) holds[{l.lock, l.track}].push_back({l.begin, l.end});
  for (const auto& [key, intervals] : holds) {
    const IntervalSet held(intervals);
    for (const auto& [own, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (ratio(own->busy.overlap(held), own->busy.total()) < 0.8) continue;
      if (ratio(other->busy.overlap(held), other->busy.total()) > 0.1) continue;
      // Somebody must have waited for it while it was held so.
      std::map<int, int64_t> waited;
      NameId during = 0;
      for (const LockInterval& w : trace.locks)
        if (w.wait && w.lock == key.first && w.other == key.second)
          waited[w.track] += w.length(), during = w.other_span;
      for (const auto& [track, ns] : waited) {
        if (ns <= pair.waited_ns) continue;
        pair.waited_ns = ns, pair.lock = trace.text(key.first), pair.holder = trace.track_title(key.second);
        pair.holder_span = trace.text(during), pair.waiter = trace.track_title(track);
      }
    }
  }
  for (const LockTime& l : lock_times(trace))
    if (l.lock == pair.lock && l.holder == pair.holder) pair.held_across = l.held_across;
}

// Whether one stream was told to wait for the other's events.
bool ordered_by_events(const Trace& trace, const Lane& a, const Lane& b) {
  if (a.track < 0 || b.track < 0) return false;
  for (const DeviceOp& op : trace.device_ops) {
    if (op.kind != DeviceOpKind::kSync || (op.track != a.track && op.track != b.track)) continue;
    const std::string_view awaited = trace.arg(op.first_arg, op.args, "wait_on_stream");
    const int other = op.track == a.track ? b.track : a.track;
    if (!awaited.empty() && std::atoi(awaited.data()) == trace.tracks[other].stream) return true;
  }
  return false;
}

IntervalSet matching(const Trace& trace, const std::string& pattern, Interval window) {
  std::vector<Interval> found;
  const auto take = [&](NameId name, int64_t begin, int64_t end) {
    if (trace.text(name).find(pattern) != std::string::npos) found.push_back({begin, end});
  };
  for (const Span& s : trace.spans) take(s.name, s.begin, s.end);
  for (const Span& s : trace.async_spans) take(s.name, s.begin, s.end);
  for (const DeviceOp& op : trace.device_ops)
    if (op.is_work()) take(op.name, op.begin, op.end);
  return IntervalSet(std::move(found)).clipped(window);
}

void find_findings(OverlapReport& r) {
  for (const NeverOverlap& n : r.never) {
    if (n.ordered_by_events) continue;
    std::string text = fmt::format("'{}' and '{}' never overlap ({} of an expected {}, {} turns)", n.sets.a, n.sets.b,
                                   duration_text(n.sets.both_ns), duration_text(n.sets.expected_ns), n.turns);
    if (n.lock.empty())
      text += "; suspect something that both need, such as a lock or a link: the trace has no probe that names it (A1)";
    else
      text +=
          fmt::format("; lock '{}' is held by {}{}{}, {} waited {} for it (A3)", n.lock, n.holder,
                      n.holder_span.empty() ? "" : " in " + n.holder_span,
                      n.held_across.empty() ? "" : " across " + n.held_across, n.waiter, duration_text(n.waited_ns));
    r.findings.push_back(text);
  }
  for (const DeviceTime& d : r.devices)
    if (ratio(d.idle_ns, d.extent_ns) > kIdleWorthSaying)
      r.findings.push_back(fmt::format("device {} is idle {} of {} ({:.1f} %), longest gap {} (A1)", d.device,
                                       duration_text(d.idle_ns), duration_text(d.extent_ns),
                                       100 * ratio(d.idle_ns, d.extent_ns), duration_text(d.longest_gap_ns)));
  for (const LockTime& l : r.locks)
    if (ratio(l.wait_ns, r.window.length()) > 0.01)
      r.findings.push_back(fmt::format("threads waited {} for lock '{}'; longest hold {} by {}{}{} (A3)",
                                       duration_text(l.wait_ns), l.lock, duration_text(l.longest_contended_hold_ns),
                                       l.holder, l.holder_span.empty() ? "" : " in " + l.holder_span,
                                       l.held_across.empty() ? "" : ", across " + l.held_across));
}

}  // namespace

Result<OverlapReport> find_overlap(const Trace& trace, const OverlapOptions& options) {
  OverlapReport r;
  r.source = trace.source, r.warnings = trace.warnings, r.lost_events = trace.lost_events, r.window = trace.window();
  if (!options.within.empty()) {
    const auto window = instance_of(trace, options.within, options.instance);
    if (!window)
      return not_found("--within '{}' --instance {}: the trace has no such span; lathe trace show lists names",
                       options.within, options.instance);
    r.window = *window;
  }
  if (options.a.empty() != options.b.empty()) return invalid("--a and --b go together: the names of two sets");
  if (!options.a.empty()) {
    const Lane a{options.a, matching(trace, options.a, r.window), -1},
        b{options.b, matching(trace, options.b, r.window), -1};
    for (const Lane* lane : {&a, &b})
      if (lane->busy.empty()) return not_found("nothing in the trace has '{}' in its name", lane->name);
    r.asked = overlap_of(a, b);
  }
  const std::vector<Lane> lanes = lanes_of(trace, r.window);
  std::map<std::string, IntervalSet> categories;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (i < 6) categories[lanes[i].name] = lanes[i].busy;
    for (size_t j = i + 1; j < lanes.size(); ++j) {
      const SetOverlap o = overlap_of(lanes[i], lanes[j]);
      if (o.expected_ns > 0 || o.both_ns > 0) r.pairs.push_back(o);
      if (!never_together(lanes[i], lanes[j], o)) continue;
      NeverOverlap pair{.sets = o, .turns = turns(lanes[i].busy, lanes[j].busy)};
      pair.ordered_by_events = ordered_by_events(trace, lanes[i], lanes[j]);
      name_lock(trace, lanes[i], lanes[j], pair);
      r.never.push_back(pair);
    }
  }
  std::stable_sort(r.pairs.begin(), r.pairs.end(), [](const SetOverlap& x, const SetOverlap& y) {
    return std::min(x.a_ns, x.b_ns) > std::min(y.a_ns, y.b_ns);
  });
  if (!categories.empty()) r.shares = overlap_by_category(categories, r.window);
  r.devices = device_times(trace), r.locks = lock_times(trace);
  r.path = critical_path(trace, r.window);
  find_findings(r);
  return r;
}

namespace {

std::string pair_line(const SetOverlap& o) {
  const int64_t smaller = std::min(o.a_ns, o.b_ns);
  return fmt::format("{:<28} {:<28} {:>9} {:>9} {:>9} {:>6.1f} %\n", shortened(o.a, 28), shortened(o.b, 28),
                     duration_text(o.a_ns), duration_text(o.b_ns), duration_text(o.both_ns),
                     100 * ratio(o.both_ns, smaller));
}

nlohmann::json us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

nlohmann::json pair_json(const SetOverlap& o) {
  return {{"a", o.a},
          {"b", o.b},
          {"a_us", us(o.a_ns)},
          {"b_us", us(o.b_ns)},
          {"both_us", us(o.both_ns)},
          {"either_us", us(o.either_ns)},
          {"expected_us", us(o.expected_ns)}};
}

}  // namespace

std::string to_text(const OverlapReport& r) {
  std::string out = fmt::format("{} trace, window of {}\n", r.source, duration_text(r.window.length()));
  for (const std::string& w : r.warnings) out += fmt::format("warning: {}\n", w);
  if (r.lost_events > 0) out += fmt::format("{} events were lost: times are lower bounds\n", r.lost_events);
  const std::string head =
      fmt::format("\n{:<28} {:<28} {:>9} {:>9} {:>9} {:>8}\n", "set", "and set", "first", "second", "both", "of less");
  if (r.asked) out += head + pair_line(*r.asked);
  if (!r.pairs.empty()) out += head;
  for (size_t i = 0; i < r.pairs.size() && i < 8; ++i) out += pair_line(r.pairs[i]);
  if (!r.shares.empty()) out += "\nof the window\n";
  std::vector<std::pair<std::string, int64_t>> shares(r.shares.begin(), r.shares.end());
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (size_t i = 0; i < shares.size() && i < 8; ++i)
    out += fmt::format("  {:>6.2f} %  {:>9}  {}\n", 100 * ratio(shares[i].second, r.window.length()),
                       duration_text(shares[i].second), shares[i].first);
  for (const DeviceTime& d : r.devices)
    out +=
        fmt::format("\ndevice {}: busy {}, idle {} of {} ({:.2f} %) in {} gaps\n", d.device, duration_text(d.busy_ns),
                    duration_text(d.idle_ns), duration_text(d.extent_ns), 100 * ratio(d.idle_ns, d.extent_ns), d.gaps);
  out += fmt::format("\ncritical path: {} over {} events, {} edges (an upper bound on what could be gained, A3)\n",
                     duration_text(r.path.ns), r.path.events, r.path.edges);
  for (size_t i = 0; i < r.path.shares.size() && i < 8 && r.path.shares[i].ns > 0; ++i)
    out +=
        fmt::format("  {:>6.2f} %  {:>9}  {:>5} x {}\n", 100 * ratio(r.path.shares[i].ns, r.path.ns),
                    duration_text(r.path.shares[i].ns), r.path.shares[i].count, shortened(r.path.shares[i].what, 70));
  for (const NeverOverlap& n : r.never)
    if (n.ordered_by_events)
      out += fmt::format("\n'{}' and '{}' take turns because one waits for the other's events\n", n.sets.a, n.sets.b);
  out += r.findings.empty() ? "\nno finding\n" : "\nfindings\n";
  for (const std::string& f : r.findings) out += fmt::format("  - {}\n", f);
  return out;
}

nlohmann::json to_json(const OverlapReport& r, const Trace& trace) {
  nlohmann::json j = {{"schema", 1},
                      {"source", r.source},
                      {"warnings", r.warnings},
                      {"lost_events", r.lost_events},
                      {"lower_bounds", r.lost_events > 0},
                      {"window_us", us(r.window.length())},
                      {"findings", r.findings},
                      {"asked", r.asked ? pair_json(*r.asked) : nlohmann::json()}};
  j["pairs"] = nlohmann::json::array(), j["never_overlap"] = nlohmann::json::array();
  for (const SetOverlap& o : r.pairs) j["pairs"].push_back(pair_json(o));
  for (const NeverOverlap& n : r.never)
    j["never_overlap"].push_back({{"sets", pair_json(n.sets)},
                                  {"turns", n.turns},
                                  {"ordered_by_events", n.ordered_by_events},
                                  {"lock", n.lock},
                                  {"holder", n.holder},
                                  {"holder_span", n.holder_span},
                                  {"held_across", n.held_across},
                                  {"waiter", n.waiter},
                                  {"waited_us", us(n.waited_ns)}});
  for (const auto& [name, ns] : r.shares) j["shares_us"][name] = us(ns);
  TraceSummary rest;
  rest.devices = r.devices, rest.locks = r.locks;
  const nlohmann::json summary = to_json(rest);
  j["devices"] = summary["devices"], j["locks"] = summary["locks"];
  nlohmann::json shares = nlohmann::json::array(), steps = nlohmann::json::array();
  for (const auto& s : r.path.shares) shares.push_back({{"what", s.what}, {"us", us(s.ns)}, {"count", s.count}});
  for (const PathStep& s : r.path.steps)
    steps.push_back({{"edge", path_edge_name(s.edge)},
                     {"us", us(s.ns)},
                     {"of", s.span >= 0     ? trace.text(trace.spans[s.span].name)
                            : s.device >= 0 ? trace.text(trace.device_ops[s.device].name)
                                            : std::string()}});
  j["critical_path"] = {{"nodes", r.path.nodes}, {"edges", r.path.edges}, {"events", r.path.events},
                        {"us", us(r.path.ns)},   {"level", "A3"},         {"shares", shares},
                        {"steps", steps}};
  return j;
}

}  // namespace lathe
