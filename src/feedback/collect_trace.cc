#include "feedback/collect_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "feedback/build_info.h"
#include "feedback/trace_writer.h"
#include "lathe/trace.h"

namespace lathe {

namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What a span of the engine is; the importer reads the same words back.
const char* category_of(const ProbeEvent& e) {
  const std::string_view name = e.name;
  if (e.variant) return "op";
  if (name.ends_with(" step") || name.ends_with("layer") || is_one_of(name, {"prefill", "decode"})) return "phase";
  if (name.ends_with(" wait")) return "wait";
  return "part";
}

SpanKind kind_of(std::string_view category) {
  return category == "op"     ? SpanKind::kOperator
         : category == "wait" ? SpanKind::kRuntime
         : category == "part" ? SpanKind::kOther
                              : SpanKind::kAnnotation;
}

class Collector {
 public:
  Collector(const Recorder& recorder) : recorder_(recorder) {}
  Trace run();

 private:
  // Operators of one layer in a row, from which the layer's own span follows.
  struct LayerRun {
    int64_t begin = 0, end = 0, step = -1;
    int32_t layer = -1;
    const char* name = nullptr;  // null: no run
  };

  void take_ring(const ProbeRing& ring, int track);
  void extend_layer(LayerRun& run, const ProbeEvent& op, int64_t end, int track);
  void end_layer(LayerRun& run, int track);
  void add_span(const ProbeEvent& begin, int64_t end, int track, bool open);
  void add_device_op(const ProbeEvent& begin, int64_t end, const ProbeRing& ring);
  void add_args(const ProbeEvent& e, uint32_t& first, uint32_t& count);
  void join_async();

  const Recorder& recorder_;
  Trace trace_;
  std::map<int64_t, int> track_of_thread_;
  std::map<int64_t, int> queue_of_thread_;
  std::vector<std::pair<ProbeEvent, int>> async_;
  int64_t last_ = 0;
};

void Collector::add_args(const ProbeEvent& e, uint32_t& first, uint32_t& count) {
  first = static_cast<uint32_t>(trace_.args.size());
  const auto add = [&](const char* key, const std::string& value) {
    trace_.args.push_back({trace_.names.id(key), trace_.names.id(value)});
    ++count;
  };
  if (e.variant) add("variant", e.variant);
  if (e.step >= 0) add("step", std::to_string(e.step));
  if (e.layer >= 0) add("layer", std::to_string(e.layer));
  if (e.value >= 0) add("rows", std::to_string(e.value));
}

void Collector::add_span(const ProbeEvent& begin, int64_t end, int track, bool open) {
  Span s;
  s.begin = begin.time_ns, s.end = end, s.track = track, s.open = open;
  const char* category = category_of(begin);
  s.name = trace_.names.id(begin.name), s.category = trace_.names.id(category), s.kind = kind_of(category);
  add_args(begin, s.first_arg, s.args);
  trace_.spans.push_back(s);
}

// The mixer tells the kind of a layer; its neighbours carry the same number.
void Collector::extend_layer(LayerRun& run, const ProbeEvent& op, int64_t end, int track) {
  if (run.name && (run.step != op.step || run.layer != op.layer)) end_layer(run, track);
  if (!run.name) run = {op.time_ns, end, op.step, op.layer, "layer"};
  run.end = end;
  const std::string_view name = op.name;
  if (name.starts_with("kda_")) run.name = "kda layer";
  if (name == "sparse_mla" || name == "index_select") run.name = "sparse layer";
}

void Collector::end_layer(LayerRun& run, int track) {
  if (run.name) {
    ProbeEvent e;
    e.time_ns = run.begin, e.name = run.name, e.step = run.step, e.layer = run.layer;
    add_span(e, run.end, track, false);
  }
  run = {};
}

void Collector::add_device_op(const ProbeEvent& begin, int64_t end, const ProbeRing& ring) {
  const auto [at, fresh] = queue_of_thread_.try_emplace(ring.thread_id(), static_cast<int>(trace_.tracks.size()));
  if (fresh) {
    Track t;
    t.kind = TrackKind::kDevice, t.device = 0, t.stream = static_cast<int>(queue_of_thread_.size()) - 1;
    t.process = trace_.names.id("device 0"), t.thread = trace_.names.id(fmt::format("queue {}", t.stream));
    trace_.tracks.push_back(t);
  }
  DeviceOp op;
  op.begin = begin.time_ns, op.end = end, op.track = at->second, op.name = trace_.names.id(begin.name);
  add_args(begin, op.first_arg, op.args);
  trace_.device_ops.push_back(op);
}

void Collector::take_ring(const ProbeRing& ring, int track) {
  std::vector<ProbeEvent> open, device;
  std::map<std::string_view, ProbeEvent> waiting, holding;
  LayerRun layer;
  int open_operators = 0;
  const int64_t size = ring.size();
  for (int64_t i = 0; i < size; ++i) {
    const ProbeEvent& e = ring.at(i);
    last_ = std::max(last_, e.time_ns);
    switch (e.kind) {
      case ProbeKind::kBegin:
        if (!e.variant && open_operators == 0) end_layer(layer, track);
        open_operators += e.variant != nullptr;
        open.push_back(e);
        break;
      case ProbeKind::kEnd:
        if (open.empty()) break;
        if (!open.back().variant) {
          if (open_operators == 0) end_layer(layer, track);
        } else if (--open_operators == 0 && open.back().layer >= 0) {
          extend_layer(layer, open.back(), e.time_ns, track);
        }
        add_span(open.back(), e.time_ns, track, false);
        open.pop_back();
        break;
      case ProbeKind::kDeviceBegin:
        device.push_back(e);
        break;
      case ProbeKind::kDeviceEnd:
        if (!device.empty()) add_device_op(device.back(), e.time_ns, ring), device.pop_back();
        break;
      case ProbeKind::kAsyncBegin:
      case ProbeKind::kAsyncEnd:
        async_.push_back({e, track});
        break;
      case ProbeKind::kCounter:
        trace_.counters.push_back({e.time_ns, track, trace_.names.id(e.name), static_cast<double>(e.value)});
        break;
      case ProbeKind::kLockWait:
        waiting[e.name] = e;
        break;
      case ProbeKind::kLockAcquire: {
        const auto wait = waiting.find(e.name);
        if (wait != waiting.end()) {
          LockInterval l;
          l.begin = wait->second.time_ns, l.end = e.time_ns, l.lock = trace_.names.id(e.name), l.track = track,
          l.wait = true;
          const auto holder = track_of_thread_.find(wait->second.value);
          if (holder != track_of_thread_.end()) l.other = holder->second;
          trace_.locks.push_back(l);
          Span s;  // the wait is a part of what the thread did
          s.begin = l.begin, s.end = l.end, s.track = track, s.kind = SpanKind::kRuntime;
          s.name = trace_.names.id(fmt::format("wait for lock {}", e.name)), s.category = trace_.names.id("lock_wait");
          trace_.spans.push_back(s);
          waiting.erase(wait);
        }
        holding[e.name] = e;
        break;
      }
      case ProbeKind::kLockRelease:
        if (const auto held = holding.find(e.name); held != holding.end()) {
          LockInterval l;
          l.begin = held->second.time_ns, l.end = e.time_ns, l.lock = trace_.names.id(e.name), l.track = track;
          trace_.locks.push_back(l);
          holding.erase(held);
        }
        break;
    }
  }
  end_layer(layer, track);
  for (; !open.empty(); open.pop_back()) add_span(open.back(), last_, track, true);
}

void Collector::join_async() {
  std::stable_sort(async_.begin(), async_.end(),
                   [](const auto& a, const auto& b) { return a.first.time_ns < b.first.time_ns; });
  std::map<std::pair<std::string_view, int64_t>, std::pair<ProbeEvent, int>> open;
  std::map<std::string_view, int> lanes;
  for (const auto& [e, track] : async_) {
    const std::pair<std::string_view, int64_t> key{e.name, e.value};
    if (e.kind == ProbeKind::kAsyncBegin) {
      open[key] = {e, track};
      continue;
    }
    const auto begun = open.find(key);
    if (begun == open.end()) continue;
    const auto [lane, fresh] = lanes.try_emplace(e.name, static_cast<int>(trace_.tracks.size()));
    if (fresh) {
      Track t = trace_.tracks[begun->second.second];
      t.kind = TrackKind::kAsync, t.name = 0, t.thread = trace_.names.id("async in flight");
      trace_.tracks.push_back(t);
    }
    Span s;
    s.begin = begun->second.first.time_ns, s.end = e.time_ns, s.track = lane->second;
    s.name = trace_.names.id(e.name), s.category = trace_.names.id("in flight");
    trace_.async_spans.push_back(s);
    open.erase(begun);
  }
}

Trace Collector::run() {
  trace_.source = "lathe", trace_.clocks = {"the monotonic clock of the recording machine"};
  trace_.lost_events = recorder_.lost_events();
  const auto rings = recorder_.rings();
  const NameId process = trace_.names.id(std::to_string(getpid())), lathe = trace_.names.id("lathe");
  for (const ProbeRing* ring : rings) {
    track_of_thread_[ring->thread_id()] = static_cast<int>(trace_.tracks.size());
    Track t;
    t.process = process, t.process_name = lathe, t.thread = trace_.names.id(std::to_string(ring->thread_id()));
    const bool main = ring->thread_id() == getpid();
    t.name = trace_.names.id(main ? "main" : ring->thread_name());
    trace_.tracks.push_back(t);
  }
  for (const ProbeRing* ring : rings) {
    take_ring(*ring, track_of_thread_[ring->thread_id()]);
    for (const auto& [name, count] : ring->counts()) {
      std::string& fact =
          trace_.facts["otherData.count." + name.first + (name.second.empty() ? "" : "/" + name.second)];
      fact = std::to_string((fact.empty() ? 0 : std::stoll(fact)) + count);
    }
  }
  join_async();
  trace_.finish();
  return std::move(trace_);
}

}  // namespace

Trace collect(const Recorder& recorder, const std::vector<std::pair<std::string, std::string>>& settings) {
  Trace trace = Collector(recorder).run();
  const BuildInfo& build = build_info();
  trace.facts["otherData.build_id"] = build.build_id, trace.facts["otherData.commit"] = build.commit;
  constexpr const char* kLevels[] = {"off", "counters", "full"};
  trace.facts["otherData.level"] = kLevels[static_cast<int>(recorder.options().level)];
  std::string injected;
  for (const Injection& i : recorder.options().injections) injected += (injected.empty() ? "" : " ") + i.text();
  trace.facts["otherData.injected"] = injected.empty() ? "nothing" : injected;
  for (const auto& [key, value] : settings) trace.facts["otherData.setting." + key] = value;
  return trace;
}

Result<std::shared_ptr<Recorder>> begin_recording(const RecordingOptions& options) {
  Recorder::Options o;
  for (const std::string& text : options.inject) {
    LATHE_ASSIGN(Injection i, Injection::parse(text));
    o.injections.push_back(std::move(i));
  }
  if (options.level != "full" && options.level != "counters" && options.level != "off")
    return invalid("trace level {}: there are off, counters and full", options.level);
  if ((options.file.empty() || options.level == "off") && o.injections.empty()) return std::shared_ptr<Recorder>();
  o.level = options.file.empty() || options.level == "off" ? ProbeLevel::kOff
            : options.level == "full"                      ? ProbeLevel::kFull
                                                           : ProbeLevel::kCounters;
  return std::make_shared<Recorder>(std::move(o));
}

Status write_recording(const Recorder* recorder, const RecordingOptions& options,
                       const std::vector<std::pair<std::string, std::string>>& settings) {
  if (!recorder || options.file.empty()) return Status::ok();
  return write_chrome(collect(*recorder, settings), options.file);
}

}  // namespace lathe
