#include "feedback/critical_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace lathe {

namespace {

constexpr int64_t kLongestGap = 1500000;  // ns; behind more than that lies a dependency which the trace doesn't show

constexpr std::array<std::string_view, 12> kBlockingCalls = {
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery",       "cudaEventSynchronize", "cudaMemcpy",
    "cudaMemcpyAsync",       "hipDeviceSynchronize",  "hipStreamSynchronize", "hipEventSynchronize",  "hipMemcpy",
    "hipMemcpyWithStream",   "cuStreamSynchronize"};

bool is_blocking(std::string_view name) { return waits_for_device(name) || name.starts_with("wait for lock "); }

struct Node {
  int64_t time;
  int event;  // spans first, then device operations
  bool end;
};

struct Edge {
  int from, to;
  int64_t ns;
  PathEdge kind;
  int owner;  // event whose time it is; -1: nobody's
};

class Graph {
 public:
  Graph(const Trace& trace, Interval window) : trace_(trace), spans_(static_cast<int>(trace.spans.size())) {
    path_.window = window;
    choose_events(window);
    add_threads();
    add_device_ops();
    add_lock_waits();
  }
  CriticalPath longest();

 private:
  void choose_events(Interval window);
  void add_threads();
  void add_device_ops();
  void add_lock_waits();
  int event_of_device_op(int op) const { return spans_ + op; }
  int begin_node(int event) const { return at(event, false); }
  int end_node(int event) const { return at(event, true); }
  int at(int event, bool end) const {
    const auto found = nodes_of_.find(event);
    return found == nodes_of_.end() ? -1 : found->second + end;
  }
  void add_event(int event, int64_t begin, int64_t end) {
    nodes_of_[event] = static_cast<int>(nodes_.size());
    nodes_.push_back({begin, event, false});
    nodes_.push_back({end, event, true});
  }
  void add(int from, int to, PathEdge kind, int owner, bool weighs) {
    if (from < 0 || to < 0) return;
    edges_.push_back({from, to, weighs ? std::max<int64_t>(0, nodes_[to].time - nodes_[from].time) : 0, kind, owner});
  }
  void describe(const std::vector<int>& chain);

  const Trace& trace_;
  int spans_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::map<int, int> nodes_of_;
  CriticalPath path_;
};

// Calls and operators, where the trace tells them from other spans; else all. Those without length have no place in a
// chain. Device operations count by when they were launched.
void Graph::choose_events(Interval window) {
  const auto is_call = [](const Span& s) { return s.kind == SpanKind::kOperator || s.kind == SpanKind::kRuntime; };
  const bool calls = std::any_of(trace_.spans.begin(), trace_.spans.end(), is_call);
  for (int i = 0; i < spans_; ++i) {
    const Span& s = trace_.spans[i];
    if (s.begin >= window.begin && s.begin <= window.end && s.length() > 0 && (!calls || is_call(s)) &&
        trace_.tracks[s.track].kind == TrackKind::kThread)
      add_event(i, s.begin, s.end);
  }
  for (int i = 0; i < static_cast<int>(trace_.device_ops.size()); ++i) {
    const DeviceOp& op = trace_.device_ops[i];
    if (!op.is_work()) continue;
    if (op.launch >= 0 ? nodes_of_.contains(op.launch) : op.begin >= window.begin && op.begin <= window.end)
      add_event(event_of_device_op(i), op.begin, op.end);
  }
}

void Graph::add_threads() {
  struct Thread {
    std::vector<int> open;
    int last = -1;  // node
  };
  std::vector<Thread> threads(trace_.tracks.size());
  const auto leave = [&](Thread& t) {
    const int event = t.open.back();
    t.open.pop_back();
    add(t.last, end_node(event), PathEdge::kRun, event, !is_blocking(trace_.text(trace_.spans[event].name)));
    t.last = end_node(event);
  };
  for (int i = 0; i < spans_; ++i) {
    if (begin_node(i) < 0) continue;
    const Span& s = trace_.spans[i];
    Thread& t = threads[s.track];
    while (!t.open.empty() && trace_.spans[t.open.back()].end <= s.begin) leave(t);
    add(t.last, begin_node(i), t.open.empty() ? PathEdge::kFollow : PathEdge::kRun, t.open.empty() ? -1 : t.open.back(),
        !t.open.empty());
    t.last = begin_node(i);
    t.open.push_back(i);
  }
  for (Thread& t : threads)
    while (!t.open.empty()) leave(t);
}

void Graph::add_device_ops() {
  path_.launch_ns.assign(trace_.device_ops.size(), -1);
  path_.gap_ns.assign(trace_.device_ops.size(), -1);
  std::vector<int> order(trace_.device_ops.size());
  for (int i = 0; i < static_cast<int>(order.size()); ++i) order[i] = i;
  // A synchronisation acts when it ends.
  const auto acts = [&](int i) {
    const DeviceOp& op = trace_.device_ops[i];
    return op.is_work() ? op.begin : op.end;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return acts(a) < acts(b); });
  std::map<int, int> last;  // node, by stream
  std::map<std::pair<int, int>, int> stream_track;
  for (const DeviceOp& op : trace_.device_ops) {
    const Track& t = trace_.tracks[op.track];
    if (op.is_work()) stream_track[{t.device, t.stream}] = op.track;
  }
  std::map<int, std::vector<int>> must_follow;  // nodes that the next operation of a stream waits for
  for (int i : order) {
    const DeviceOp& op = trace_.device_ops[i];
    const std::string& name = trace_.text(op.name);
    if (!op.is_work()) {
      const int waiter = op.launch < 0 ? -1 : end_node(op.launch);
      const std::string_view awaited = trace_.arg(op.first_arg, op.args, "wait_on_stream");
      if (name == "Stream Wait Event") {
        const auto source = awaited.empty()
                                ? stream_track.end()
                                : stream_track.find({trace_.tracks[op.track].device, std::atoi(awaited.data())});
        if (source != stream_track.end() && source->second != op.track && last.contains(source->second))
          must_follow[op.track].push_back(last[source->second]);
      } else if (name.starts_with("Context Sync") || name.starts_with("Device")) {
        for (const auto& [stream, node] : last) add(node, waiter, PathEdge::kWait, -1, false);
      } else if (last.contains(op.track)) {
        add(last[op.track], waiter, PathEdge::kWait, -1, false);
      }
      continue;
    }
    const int event = event_of_device_op(i), begin = begin_node(event);
    if (begin < 0) continue;
    add(begin, end_node(event), PathEdge::kRun, event, true);
    for (int node : must_follow[op.track]) add(node, begin, PathEdge::kWait, -1, false);
    must_follow[op.track].clear();
    const int call = op.launch < 0 ? -1 : begin_node(op.launch);
    const auto before = last.find(op.track);
    if (before == last.end() || (call >= 0 && nodes_[before->second].time < nodes_[call].time)) {
      add(call, begin, PathEdge::kLaunch, event, true);
      if (call >= 0) path_.launch_ns[i] = nodes_[begin].time - nodes_[call].time;
    } else {
      const int64_t gap = nodes_[begin].time - nodes_[before->second].time;
      add(before->second, begin, PathEdge::kGap, event, gap < kLongestGap);
      add(call, begin, PathEdge::kLaunch, event, false);  // not before its call, whatever else is changed
      path_.gap_ns[i] = gap;
    }
    last[op.track] = end_node(event);
  }
}

// A wait for a lock ends when its holder lets go: the path runs on through the holder.
void Graph::add_lock_waits() {
  for (const LockInterval& wait : trace_.locks) {
    if (!wait.wait || wait.other < 0) continue;
    const int waiter = innermost_span(trace_, wait.track, wait.begin);
    if (waiter < 0 || end_node(waiter) < 0) continue;
    // The holder's last node before the release.
    int best = -1;
    for (int s = innermost_span(trace_, wait.other, wait.end - 1); s >= 0; s = trace_.spans[s].parent)
      for (int node : {begin_node(s), end_node(s)})
        if (node >= 0 && nodes_[node].time <= wait.end && (best < 0 || nodes_[node].time > nodes_[best].time))
          best = node;
    if (best >= 0) add(best, end_node(waiter), PathEdge::kWait, -1, false);
  }
}

CriticalPath Graph::longest() {
  const int count = static_cast<int>(nodes_.size());
  std::vector<std::vector<int>> in(count), out(count);
  std::vector<int> waits(count, 0);
  for (int e = 0; e < static_cast<int>(edges_.size()); ++e) {
    in[edges_[e].to].push_back(e);
    out[edges_[e].from].push_back(e);
    ++waits[edges_[e].to];
  }
  // In the order of their predecessors; earliest first where there is a choice. Damaged traces can have cycles: nodes
  // of a cycle are released in order of time.
  std::set<std::pair<int64_t, int>> ready, held;
  for (int n = 0; n < count; ++n) (waits[n] == 0 ? ready : held).insert({nodes_[n].time, n});
  std::vector<int64_t> length(count, 0);
  std::vector<int> via(count, -1);
  std::vector<bool> done(count, false);
  int last = -1;
  while (!ready.empty() || !held.empty()) {
    auto& from = ready.empty() ? held : ready;
    const int n = from.begin()->second;
    from.erase(from.begin());
    done[n] = true;
    for (int e : in[n])
      if (done[edges_[e].from] && edges_[e].from != n) {
        const int64_t reached = length[edges_[e].from] + edges_[e].ns;
        if (via[n] < 0 || reached > length[n]) length[n] = reached, via[n] = e;
      }
    // Of equal lengths the one that ends first: nothing that weighs nothing comes after the end.
    if (last < 0 || length[n] > length[last]) last = n;
    for (int e : out[n])
      if (--waits[edges_[e].to] == 0 && !done[edges_[e].to]) {
        held.erase({nodes_[edges_[e].to].time, edges_[e].to});
        ready.insert({nodes_[edges_[e].to].time, edges_[e].to});
      }
  }
  std::vector<int> chain;
  std::set<int> events;
  for (int n = last; n >= 0; n = via[n] < 0 ? -1 : edges_[via[n]].from) {
    events.insert(nodes_[n].event);
    if (via[n] >= 0) chain.push_back(via[n]);
  }
  std::reverse(chain.begin(), chain.end());
  path_.nodes = count == 0 ? 0 : static_cast<int64_t>(chain.size()) + 1;
  path_.edges = static_cast<int64_t>(chain.size());
  path_.events = static_cast<int64_t>(events.size());
  path_.ns = last < 0 ? 0 : length[last];
  describe(chain);
  return std::move(path_);
}

void Graph::describe(const std::vector<int>& chain) {
  std::map<std::string, CriticalPath::Share> shares;
  for (int c : chain) {
    const Edge& e = edges_[c];
    PathStep step{e.kind, e.ns, -1, -1};
    std::string what = path_edge_name(e.kind);
    if (e.owner >= spans_) {
      step.device = e.owner - spans_;
      const DeviceOp& op = trace_.device_ops[step.device];
      what += e.kind == PathEdge::kRun ? " " + trace_.text(op.name) : " on " + trace_.track_title(op.track);
    } else if (e.owner >= 0) {
      step.span = e.owner;
      what += " " + trace_.text(trace_.spans[e.owner].name);
    }
    path_.steps.push_back(step);
    CriticalPath::Share& share = shares[what];
    share.what = what, share.ns += e.ns, ++share.count;
  }
  for (auto& [what, share] : shares) path_.shares.push_back(share);
  std::stable_sort(path_.shares.begin(), path_.shares.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
}

}  // namespace

bool waits_for_device(std::string_view call) {
  call = call.substr(0, call.find("_v"));  // "cudaStreamSynchronize_v3020", as Nsight spells it
  return std::find(kBlockingCalls.begin(), kBlockingCalls.end(), call) != kBlockingCalls.end();
}

const char* path_edge_name(PathEdge edge) {
  constexpr const char* kNames[] = {"run", "launch", "gap", "wait", "follow"};
  return kNames[static_cast<int>(edge)];
}

CriticalPath critical_path(const Trace& trace, Interval window) { return Graph(trace, window).longest(); }

std::optional<Interval> instance_of(const Trace& trace, const std::string& name, int instance) {
  std::vector<const Span*> found;
  for (const auto* spans : {&trace.spans, &trace.async_spans})
    for (const Span& s : *spans)
      if (trace.text(s.name).find(name) != std::string::npos) found.push_back(&s);
  std::stable_sort(found.begin(), found.end(), [](const Span* a, const Span* b) { return a->begin < b->begin; });
  std::vector<Interval> innermost;
  for (size_t i = 0; i < found.size(); ++i) {
    bool around = false;
    for (size_t j = i + 1; j < found.size() && found[j]->begin < found[i]->end && !around; ++j)
      around = found[j]->track == found[i]->track && found[j]->name == found[i]->name && found[j]->end <= found[i]->end;
    if (!around) innermost.push_back({found[i]->begin, found[i]->end});
  }
  if (instance < 1 || instance > static_cast<int>(innermost.size())) return std::nullopt;
  return innermost[instance - 1];
}

}  // namespace lathe
