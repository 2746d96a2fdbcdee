#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "feedback/trace_tables.h"

// Traces in, whoever recorded them. A damaged file gives what can be read of it and says in Trace::warnings what was
// wrong; only a file in which nothing can be found is an error.
namespace lathe {

// By its content: Lathe's or anybody's Chrome trace-event JSON (PyTorch profiler), Nsight Systems SQLite export, text
// of `perf script`, collapsed stacks; each may be compressed with gzip.
Result<Trace> import_trace(const std::string& path);
Result<Trace> import_trace_bytes(std::string_view bytes, const std::string& name);

// One format each; bytes are not compressed.
Result<Trace> import_chrome(std::string_view json, const std::string& name);
Result<Trace> import_nsight(std::string_view database, const std::string& name);
Result<Trace> import_perf(std::string_view text, const std::string& name);
Result<Trace> import_collapsed(std::string_view text, const std::string& name);

// Keeps times near one another, so that differences and sums of them can't overflow: a year from the first one.
class TimeFence {
 public:
  bool admits(int64_t begin, int64_t end) {
    if (begin < -kFarthest || begin > kFarthest || end < begin || end > kFarthest) return false;
    if (!origin_) origin_ = begin;
    return begin > *origin_ - kYear && end < *origin_ + kYear;
  }

 private:
  static constexpr int64_t kFarthest = 4000000000000000000, kYear = 32000000000000000;
  std::optional<int64_t> origin_;
};

// Warnings of one kind become one line with a count.
class TraceComplaints {
 public:
  void add(std::string_view what) { ++counts_[std::string(what)]; }
  void write(Trace& trace) const;

 private:
  std::map<std::string, int64_t> counts_;
};

}  // namespace lathe
