#include "feedback/trace_writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstdio>

namespace lathe {

namespace {

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// A whole number stays one; all else is text.
std::string value_text(const std::string& text) {
  const bool number = !text.empty() && text.size() < 18 && (text[0] != '0' || text.size() == 1) &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return number ? text : json_text(text);
}

std::string us(int64_t ns) {
  const uint64_t size = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

class Writer {
 public:
  explicit Writer(const Trace& trace) : trace_(trace) {}
  std::string run();

 private:
  // The fields that every event has.
  void begin(const char* phase, std::string_view name, std::string_view category, int track, int64_t time);
  void args(uint32_t first, uint32_t count);
  void end() { out_ += '}'; }
  void pair(const char* first, const char* second, std::string_view name, std::string_view category, int track,
            int64_t from, int64_t to, const std::string& extra);
  const std::string& thread(int track) const { return trace_.text(trace_.tracks[track].thread); }

  const Trace& trace_;
  std::string out_;
  int64_t next_id_ = 1;
  bool first_ = true;
};

void Writer::begin(const char* phase, std::string_view name, std::string_view category, int track, int64_t time) {
  const Track& t = trace_.tracks[track];
  out_ += first_ ? "\n" : ",\n";
  first_ = false;
  out_ +=
      fmt::format("{{\"ph\":\"{}\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{}", phase, json_text(name),
                  json_text(category), value_text(trace_.text(t.process)), value_text(trace_.text(t.thread)), us(time));
}

void Writer::args(uint32_t first, uint32_t count) {
  if (count == 0) return;
  out_ += ",\"args\":{";
  for (uint32_t i = 0; i < count; ++i) {
    const Arg& a = trace_.args[first + i];
    out_ += fmt::format("{}{}:{}", i ? "," : "", json_text(trace_.text(a.key)), value_text(trace_.text(a.value)));
  }
  out_ += '}';
}

void Writer::pair(const char* first, const char* second, std::string_view name, std::string_view category, int track,
                  int64_t from, int64_t to, const std::string& extra) {
  const int64_t id = next_id_++;
  begin(first, name, category, track, from);
  out_ += fmt::format(",\"id\":{}{}", id, extra);
  end();
  begin(second, name, category, track, to);
  out_ += fmt::format(",\"id\":{}", id);
  end();
}

std::string Writer::run() {
  out_ = "{\"traceEvents\":[";
  for (int i = 0; i < static_cast<int>(trace_.tracks.size()); ++i) {
    const Track& t = trace_.tracks[i];
    for (const auto& [what, name] : {std::pair("process_name", t.process_name), std::pair("thread_name", t.name)})
      if (name != 0) {
        begin("M", what, "", i, 0);
        out_ += fmt::format(",\"args\":{{\"name\":{}}}", json_text(trace_.text(name)));
        end();
      }
  }
  for (const Span& s : trace_.spans) {
    if (trace_.text(s.category) == "lock_wait") continue;  // written from the table of locks
    begin("X", trace_.text(s.name), trace_.text(s.category), s.track, s.begin);
    out_ += fmt::format(",\"dur\":{}", us(s.length()));
    args(s.first_arg, s.args);
    end();
  }
  for (const Span& s : trace_.async_spans) {
    const int64_t id = next_id_++;
    begin("b", trace_.text(s.name), trace_.text(s.category), s.track, s.begin);
    out_ += fmt::format(",\"id\":{}", id);
    args(s.first_arg, s.args);
    end();
    begin("e", trace_.text(s.name), trace_.text(s.category), s.track, s.end);
    out_ += fmt::format(",\"id\":{}", id);
    end();
  }
  for (const DeviceOp& op : trace_.device_ops) {
    const Track& t = trace_.tracks[op.track];
    constexpr const char* kCategories[] = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"};
    begin("X", trace_.text(op.name), kCategories[static_cast<int>(op.kind)], op.track, op.begin);
    out_ += fmt::format(",\"dur\":{},\"args\":{{\"device\":{},\"stream\":{}", us(op.length()), t.device, t.stream);
    if (op.correlation >= 0) out_ += fmt::format(",\"correlation\":{}", op.correlation);
    if (op.bytes >= 0) out_ += fmt::format(",\"bytes\":{}", op.bytes);
    out_ += "}}";
  }
  for (const LockInterval& l : trace_.locks) {
    if (l.wait) {
      begin("X", trace_.text(l.lock), "lock_wait", l.track, l.begin);
      out_ += fmt::format(",\"dur\":{}", us(l.length()));
      if (l.other >= 0) out_ += fmt::format(",\"args\":{{\"holder\":{}}}", value_text(thread(l.other)));
      end();
    } else {
      pair("b", "e", trace_.text(l.lock), "lock_hold", l.track, l.begin, l.end,
           fmt::format(",\"args\":{{\"tid\":{}}}", value_text(thread(l.track))));
    }
  }
  for (const CounterSample& c : trace_.counters) {
    begin("C", trace_.text(c.name), "", c.track, c.time);
    out_ += fmt::format(",\"args\":{{\"value\":{}}}", c.value);
    end();
  }
  for (const Flow& f : trace_.flows) {
    const int64_t id = next_id_++;
    begin("s", trace_.text(f.name), "flow", f.from_track, f.from_time);
    out_ += fmt::format(",\"id\":{}", id);
    end();
    begin("f", trace_.text(f.name), "flow", f.to_track, f.to_time);
    out_ += fmt::format(",\"id\":{},\"bp\":\"e\"", id);
    end();
  }
  out_ += "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{";
  out_ += fmt::format("\"source\":{},\"lost_events\":{}", json_text(trace_.source), trace_.lost_events);
  for (const auto& [key, value] : trace_.facts)
    if (key.rfind("otherData.", 0) == 0 && key != "otherData.source" && key != "otherData.lost_events")
      out_ += fmt::format(",{}:{}", json_text(key.substr(10)), json_text(value));
  return out_ + "}}\n";
}

}  // namespace

std::string chrome_json(const Trace& trace) { return Writer(trace).run(); }

Status write_chrome(const Trace& trace, const std::string& path) {
  const std::string json = chrome_json(trace);
  bool written = false;
  if (path.ends_with(".gz")) {
    gzFile file = gzopen(path.c_str(), "wb6");
    if (!file) return not_found("{}: can't be written", path);
    size_t at = 0;
    while (at < json.size()) {
      const int got =
          gzwrite(file, json.data() + at, static_cast<unsigned>(std::min<size_t>(json.size() - at, 1 << 26)));
      if (got <= 0) break;
      at += static_cast<size_t>(got);
    }
    written = gzclose(file) == Z_OK && at == json.size();
  } else {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) return not_found("{}: can't be written", path);
    written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
    written = std::fclose(file) == 0 && written;
  }
  return written ? Status::ok() : exhausted("{}: couldn't be written to its end: disk full?", path);
}

}  // namespace lathe
