#include <fmt/format.h>
#include <sqlite3.h>

#include <cstring>
#include <functional>
#include <set>

#include "feedback/importer.h"

// Nsight Systems' SQLite export. Tables and columns differ between its versions: what is missing is left out.
namespace lathe {

namespace {

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

// What a row of a query says, by column.
class Row {
 public:
  explicit Row(sqlite3_stmt* s) : s_(s) {}
  bool has(int column) const { return sqlite3_column_type(s_, column) != SQLITE_NULL; }
  int64_t integer(int column, int64_t fallback = -1) const {
    return has(column) ? sqlite3_column_int64(s_, column) : fallback;
  }
  std::string text(int column) const {
    const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(s_, column));
    return t ? std::string(t, static_cast<size_t>(sqlite3_column_bytes(s_, column))) : "";
  }

 private:
  sqlite3_stmt* s_;
};

class NsightImporter {
 public:
  explicit NsightImporter(const std::string& name) : name_(name) {}
  Result<Trace> run(std::string_view bytes);

 private:
  Status open(std::string_view bytes);
  std::set<std::string> columns(const std::string& table);
  // One row a call, columns in the order asked for; those that the table lacks are NULL. Does nothing without the
  // table.
  void rows(const std::string& table, const std::vector<std::string>& wanted, const std::function<void(const Row&)>& f);
  NameId name(int64_t id);
  int thread(int64_t global_tid);
  int stream(int64_t device, int64_t stream);
  void device_ops(const std::string& table, DeviceOpKind kind, const char* plain_name);
  void calls(const std::string& table);
  void ranges();
  void scheduling();

  std::string name_;
  std::string copy_;  // SQLite works on it in place
  std::unique_ptr<sqlite3, CloseDatabase> db_;
  Trace trace_;
  TraceComplaints complaints_;
  TimeFence fence_;
  std::map<int64_t, NameId> strings_;
  std::map<int64_t, int> threads_;
  std::map<std::pair<int64_t, int64_t>, int> streams_;
  std::map<int64_t, std::string> process_names_;
  int tables_ = 0;
};

Status NsightImporter::open(std::string_view bytes) {
  copy_.assign(bytes);
  if (copy_.size() > 20) copy_[18] = copy_[19] = 1;  // journal mode: read as it is, whatever log it once had
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE, nullptr);
  db_.reset(db);
  if (opened != SQLITE_OK) return internal("SQLite can't open a database in memory");
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  const auto size = static_cast<sqlite3_int64>(copy_.size());
  if (sqlite3_deserialize(db, "main", reinterpret_cast<unsigned char*>(copy_.data()), size, size,
                          SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    return corrupt("{}: SQLite can't read it: {}", name_, sqlite3_errmsg(db));
  return Status::ok();
}

// None for what isn't a table: a view could make its reader compute without end.
std::set<std::string> NsightImporter::columns(const std::string& table) {
  std::set<std::string> found;
  sqlite3_stmt* raw = nullptr;
  sqlite3_prepare_v2(db_.get(),
                     "SELECT name FROM pragma_table_info(?1) WHERE EXISTS (SELECT 1 FROM sqlite_master WHERE type = "
                     "'table' AND name = ?1)",
                     -1, &raw, nullptr);
  const Statement s(raw);
  if (!raw) return found;
  sqlite3_bind_text(raw, 1, table.c_str(), -1, SQLITE_TRANSIENT);
  while (sqlite3_step(raw) == SQLITE_ROW) found.insert(Row(raw).text(0));
  return found;
}

void NsightImporter::rows(const std::string& table, const std::vector<std::string>& wanted,
                          const std::function<void(const Row&)>& f) {
  const std::set<std::string> there = columns(table);
  if (there.empty()) return;
  std::string sql = "SELECT ";
  for (size_t i = 0; i < wanted.size(); ++i)
    sql += (i ? ", " : "") + (there.contains(wanted[i]) ? "\"" + wanted[i] + "\"" : std::string("NULL"));
  sql += " FROM \"" + table + "\"";
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) {
    complaints_.add(fmt::format("table {} can't be read: {}", table, sqlite3_errmsg(db_.get())));
    return;
  }
  const Statement s(raw);
  ++tables_;
  int state;
  while ((state = sqlite3_step(raw)) == SQLITE_ROW) f(Row(raw));
  if (state != SQLITE_DONE) {
    complaints_.add(fmt::format("table {} is damaged; rows up to the damage were read", table));
    trace_.truncated = true;
  }
}

NameId NsightImporter::name(int64_t id) {
  const auto found = strings_.find(id);
  return found != strings_.end() ? found->second : trace_.names.id(fmt::format("string {}", id));
}

// A serialised global id: process in bits 24 to 47, thread in the lowest 24.
int NsightImporter::thread(int64_t global_tid) {
  const auto [at, fresh] = threads_.try_emplace(global_tid, static_cast<int>(trace_.tracks.size()));
  if (fresh) {
    const int64_t process = global_tid >> 24 & 0xFFFFFF;
    Track t;
    t.process = trace_.names.id(std::to_string(process)),
    t.thread = trace_.names.id(std::to_string(global_tid & 0xFFFFFF));
    const auto named = process_names_.find(process);
    if (named != process_names_.end()) t.process_name = trace_.names.id(named->second);
    trace_.tracks.push_back(t);
  }
  return at->second;
}

int NsightImporter::stream(int64_t device, int64_t stream) {
  const auto [at, fresh] = streams_.try_emplace({device, stream}, static_cast<int>(trace_.tracks.size()));
  if (fresh) {
    Track t;
    t.kind = TrackKind::kDevice, t.device = static_cast<int>(device), t.stream = static_cast<int>(stream);
    t.process = trace_.names.id(fmt::format("device {}", device)),
    t.thread = trace_.names.id(fmt::format("stream {}", stream));
    trace_.tracks.push_back(t);
  }
  return at->second;
}

void NsightImporter::device_ops(const std::string& table, DeviceOpKind kind, const char* plain_name) {
  rows(table,
       {"start", "end", "deviceId", "streamId", "correlationId", "demangledName", "shortName", "bytes", "copyKind"},
       [&](const Row& r) {
         if (!r.has(0) || !r.has(1) || !fence_.admits(r.integer(0), r.integer(1)))
           return complaints_.add(fmt::format("a row of {} without a time was left out", table));
         DeviceOp op;
         op.begin = r.integer(0), op.end = r.integer(1), op.kind = kind;
         op.track = stream(r.integer(2, 0), r.integer(3, 0));
         op.correlation = r.integer(4), op.bytes = r.integer(7);
         static constexpr const char* kCopies[] = {"unknown",         "host to device",  "device to host",
                                                   "host to array",   "array to host",   "array to array",
                                                   "array to device", "device to array", "device to device",
                                                   "host to host",    "peer to peer"};
         const int64_t copy = r.integer(8);
         op.name = kind == DeviceOpKind::kKernel ? name(r.has(5) ? r.integer(5) : r.integer(6))
                   : copy >= 0 && copy < 11      ? trace_.names.id(fmt::format("{} {}", plain_name, kCopies[copy]))
                                                 : trace_.names.id(plain_name);
         trace_.device_ops.push_back(op);
       });
}

void NsightImporter::calls(const std::string& table) {
  const NameId category = trace_.names.id(table == "OSRT_API" ? "os_runtime" : "cuda_runtime");
  rows(table, {"start", "end", "globalTid", "correlationId", "nameId"}, [&](const Row& r) {
    if (!r.has(0) || !r.has(1) || !fence_.admits(r.integer(0), r.integer(1)))
      return complaints_.add(fmt::format("a row of {} without a time was left out", table));
    Span s;
    s.begin = r.integer(0), s.end = r.integer(1), s.kind = SpanKind::kRuntime, s.category = category;
    s.track = thread(r.integer(2, 0));
    s.correlation = table == "OSRT_API" ? -1 : r.integer(3);
    s.name = name(r.integer(4));
    trace_.spans.push_back(s);
  });
}

void NsightImporter::ranges() {
  constexpr int64_t kPushPop = 59, kStartEnd = 60;
  const NameId category = trace_.names.id("nvtx");
  rows("NVTX_EVENTS", {"start", "end", "eventType", "text", "textId", "globalTid"}, [&](const Row& r) {
    const int64_t type = r.integer(2, kPushPop);
    if ((type != kPushPop && type != kStartEnd) || !r.has(0)) return;
    Span s;
    s.begin = r.integer(0), s.open = !r.has(1), s.end = r.integer(1, s.begin);
    if (!fence_.admits(s.begin, s.end)) return complaints_.add("a range that ends before it begins was left out");
    s.kind = SpanKind::kAnnotation, s.category = category;
    s.name = r.has(3) ? trace_.names.id(r.text(3)) : name(r.integer(4));
    s.track = thread(r.integer(5, 0));
    (type == kStartEnd ? trace_.async_spans : trace_.spans).push_back(s);
  });
}

void NsightImporter::scheduling() {
  std::map<int, int64_t> since;
  rows("SCHED_EVENTS", {"start", "isSchedIn", "globalTid"}, [&](const Row& r) {
    const int track = thread(r.integer(2, 0));
    const auto in = since.find(track);
    if (r.integer(1, 0) != 0) {
      since[track] = r.integer(0, 0);
    } else if (in != since.end()) {
      if (fence_.admits(in->second, r.integer(0, 0)))
        trace_.thread_states.push_back({in->second, r.integer(0, 0), track, ThreadStateKind::kRunning, 0});
      since.erase(in);
    }
  });
}

Result<Trace> NsightImporter::run(std::string_view bytes) {
  LATHE_RETURN_IF_ERROR(open(bytes));
  trace_.source = "nsight";
  trace_.clocks = {"the export's, in ns since its session began"};
  rows("StringIds", {"id", "value"}, [&](const Row& r) { strings_[r.integer(0)] = trace_.names.id(r.text(1)); });
  rows("PROCESSES", {"pid", "name"}, [&](const Row& r) { process_names_[r.integer(0)] = r.text(1); });
  rows("META_DATA_EXPORT", {"name", "value"}, [&](const Row& r) { trace_.facts[r.text(0)] = r.text(1); });
  device_ops("CUPTI_ACTIVITY_KIND_KERNEL", DeviceOpKind::kKernel, "kernel");
  device_ops("CUPTI_ACTIVITY_KIND_MEMCPY", DeviceOpKind::kCopy, "copy");
  device_ops("CUPTI_ACTIVITY_KIND_MEMSET", DeviceOpKind::kSet, "set");
  device_ops("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", DeviceOpKind::kSync, "sync");
  calls("CUPTI_ACTIVITY_KIND_RUNTIME");
  calls("OSRT_API");
  ranges();
  scheduling();
  rows("ThreadNames", {"nameId", "globalTid"}, [&](const Row& r) {
    const auto known = threads_.find(r.integer(1));
    if (known != threads_.end()) trace_.tracks[known->second].name = name(r.integer(0));
  });
  if (trace_.spans.empty() && trace_.device_ops.empty() && trace_.async_spans.empty())
    return corrupt(
        "{}: a SQLite file without events of Nsight Systems (no CUPTI_ACTIVITY_KIND_*, NVTX_EVENTS or OSRT_API "
        "rows); export it with: nsys export --type sqlite",
        name_);
  const int64_t last = trace_.window().end;
  for (auto* spans : {&trace_.spans, &trace_.async_spans})
    for (Span& s : *spans)
      if (s.open) s.end = last, complaints_.add("a range without an end lasts to the end of the trace");
  complaints_.write(trace_);
  trace_.finish();
  return std::move(trace_);
}

}  // namespace

Result<Trace> import_nsight(std::string_view database, const std::string& name) {
  return NsightImporter(name).run(database);
}

}  // namespace lathe
