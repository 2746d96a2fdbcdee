#include "feedback/ledger.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <optional>

#include "feedback/sha256.h"

namespace lathe {

namespace {

constexpr int kSchemaVersion = 1;
constexpr int kBusyMs = 5000;
const std::string kNoHash(64, '0');

// A field of a body that names another object, or several.
struct Reference {
  const char *field, *kind;
  bool required;
};

struct Kind {
  const char* name;
  std::vector<const char*> fields;  // that a body must have, and not empty
  std::vector<Reference> references;
};

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = {
      {"goal", {"metric", "direction", "owner"}, {}},
      {"limit_rule", {"scope", "comparator", "margin"}, {{"goal", "goal", false}}},
      {"workload", {"generator", "seed_digest"}, {}},
      {"fingerprint", {"machine"}, {}},
      {"observation", {"statement", "evidence"}, {{"evidence", "evidence", true}}},
      {"hypothesis", {"cause", "prediction", "refuter"}, {{"goal", "goal", false}}},
      {"change", {"base", "diff_digest"}, {{"goal", "goal", false}, {"hypothesis", "hypothesis", false}}},
      {"hunk", {"change", "file", "digest"}, {{"change", "change", true}}},
      {"build", {"build_id"}, {{"change", "change", false}}},
      {"experiment",
       {"plan", "plan_digest", "arms"},
       {{"hypothesis", "hypothesis", false}, {"change", "change", false}}},
      {"run", {"experiment", "arm"}, {{"experiment", "experiment", true}}},
      {"evidence", {"type", "reproduce"}, {{"experiment", "experiment", false}}},
      {"verdict",
       {"value", "experiment", "evidence"},
       {{"experiment", "experiment", true}, {"evidence", "evidence", true}}},
      {"attribution", {"verdict", "address", "level"}, {{"verdict", "verdict", true}}},
      {"gate", {"change", "kind", "decider"}, {{"change", "change", true}}},
      {"approval", {"gate", "who", "change_hash", "evidence_hash"}, {{"gate", "gate", true}}},
      {"skeleton", {"skeleton_id", "version"}, {}},
      {"skeleton_use", {"skeleton", "outcome"}, {{"skeleton", "skeleton", true}}},
      {"lesson", {"statement", "support"}, {}},
      {"policy_turn", {"policy", "action"}, {}},
      {"model_exchange", {"request_digest", "reply_digest"}, {{"policy_turn", "policy_turn", false}}},
      {"error_spend", {"goal", "level"}, {{"goal", "goal", true}}},
      {"job", {"command"}, {}},
      {"event", {"about", "state"}, {}},
  };
  return kinds;
}

const Kind* kind_named(std::string_view name) {
  const auto& kinds = all_kinds();
  const auto it = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return name == k.name; });
  return it == kinds.end() ? nullptr : &*it;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// A prepared statement with its values, stepped row by row.
class Query {
 public:
  Query(sqlite3* db, const std::string& sql) : db_(db) {
    if (sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) fail();
  }
  ~Query() { sqlite3_finalize(statement_); }
  Query(const Query&) = delete;

  Query& bind(const std::string& text) {
    if (statement_)
      sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Query& bind(int64_t number) {
    if (statement_) sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }
  // True: a row is there.
  bool step() {
    if (!status_.is_ok()) return false;
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) fail();
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return p ? std::string(p, sqlite3_column_bytes(statement_, column)) : "";
  }
  int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
  const Status& status() const { return status_; }

 private:
  void fail() {
    const int code = sqlite3_errcode(db_);
    const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    status_ = damaged ? corrupt("{}", sqlite3_errmsg(db_)) : invalid("{}", sqlite3_errmsg(db_));
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  Status status_;
};

Status execute(sqlite3* db, const std::string& sql) {
  char* message = nullptr;
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message) == SQLITE_OK) return Status::ok();
  const std::string text = message ? message : sqlite3_errmsg(db);
  sqlite3_free(message);
  return invalid("{}", text);
}

std::string append_only(const std::string& table) {
  std::string sql;
  for (const char* act : {"UPDATE", "DELETE"})
    sql += fmt::format(
        "CREATE TRIGGER {0}_no_{1} BEFORE {1} ON {0} BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;\n",
        table, act);
  return sql;
}

std::string schema() {
  std::string sql =
      "CREATE TABLE record (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL UNIQUE, time TEXT NOT NULL,"
      " author TEXT NOT NULL, body_digest TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE);\n" +
      append_only("record");
  for (const Kind& kind : all_kinds())
    sql += fmt::format(
               "CREATE TABLE {0} (id TEXT PRIMARY KEY REFERENCES record(id), body TEXT NOT NULL CHECK "
               "(json_valid(body)));\n",
               kind.name) +
           append_only(kind.name);
  return sql + fmt::format("PRAGMA user_version = {};\n", kSchemaVersion);
}

std::string record_hash(int64_t seq, const std::string& kind, const std::string& id, const std::string& time,
                        const std::string& author, const std::string& body_digest, const std::string& previous) {
  // As JSON, so that no field can run into the next.
  return sha256_hex(nlohmann::json::array({seq, kind, id, time, author, body_digest, previous}).dump());
}

bool is_empty(const nlohmann::json& j) {
  return j.is_null() || ((j.is_string() || j.is_array() || j.is_object()) && j.empty());
}

std::vector<std::string> names_in(const nlohmann::json& j) {
  std::vector<std::string> names;
  if (j.is_string()) names.push_back(j);
  if (j.is_array())
    for (const nlohmann::json& item : j) names.push_back(item.is_string() ? item.get<std::string>() : "");
  return names;
}

// What makes a hypothesis one that can be refuted.
Status check_prediction(const nlohmann::json& prediction) {
  for (const char* field : {"metric", "direction", "low", "high"})
    if (!prediction.is_object() || !prediction.contains(field) || is_empty(prediction[field]))
      return invalid("hypothesis: its prediction must have '{}'", field);
  return Status::ok();
}

}  // namespace

std::vector<std::string> Ledger::kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : all_kinds()) names.push_back(kind.name);
  return names;
}

Result<std::unique_ptr<Ledger>> Ledger::open(const std::string& path, Mode mode) {
  auto ledger = std::unique_ptr<Ledger>(new Ledger(path));
  if (mode == Mode::kRead && !std::filesystem::exists(path)) return not_found("{}: no ledger there", path);
  if (mode == Mode::kWrite) {
    const std::string lock = path + ".lock";
    ledger->lock_ = ::open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (ledger->lock_ < 0) return invalid("{}: can't be written; is the folder there?", lock);
    if (flock(ledger->lock_, LOCK_EX | LOCK_NB) != 0)
      return unavailable("{}: another process is writing this ledger; there is one writer at a time", path);
  }
  const int flags = mode == Mode::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (sqlite3_open_v2(path.c_str(), &ledger->db_, flags, nullptr) != SQLITE_OK)
    return invalid("{}: {}", path, sqlite3_errmsg(ledger->db_));
  sqlite3_busy_timeout(ledger->db_, kBusyMs);
  if (mode == Mode::kWrite) LATHE_RETURN_IF_ERROR(ledger->prepare().within(path));
  Query version(ledger->db_, "PRAGMA user_version");
  if (!version.step()) return version.status().within(path);
  if (version.number(0) != kSchemaVersion)
    return corrupt("{}: a ledger of schema {}; this build knows {}", path, version.number(0), kSchemaVersion);
  return ledger;
}

Ledger::~Ledger() {
  sqlite3_close(db_);
  if (lock_ >= 0) close(lock_);
}

Status Ledger::prepare() {
  LATHE_RETURN_IF_ERROR(
      execute(db_, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"));
  Query version(db_, "PRAGMA user_version");
  if (!version.step()) return version.status();
  if (version.number(0) != 0) return Status::ok();
  return execute(db_, "BEGIN EXCLUSIVE;" + schema() + "COMMIT;");
}

Status Ledger::demand(const std::string& name, const nlohmann::json& body) const {
  const Kind* kind = kind_named(name);
  if (!kind) return invalid("'{}' is no kind of the ledger", name);
  if (!body.is_object()) return invalid("{}: its body must be a JSON object", name);
  for (const char* field : kind->fields)
    if (!body.contains(field) || is_empty(body[field])) return invalid("{}: '{}' is missing", name, field);
  for (const Reference& reference : kind->references) {
    if (!body.contains(reference.field)) continue;  // a required one is among the fields, too
    const std::vector<std::string> ids = names_in(body[reference.field]);
    if (ids.empty() && reference.required) return invalid("{}: '{}' names nothing", name, reference.field);
    for (const std::string& id : ids) {
      Query known(db_, fmt::format("SELECT 1 FROM {} WHERE id = ?", reference.kind));
      known.bind(id);
      if (!known.step())
        return known.status().is_ok() ? not_found("{}: '{}' names {} '{}', which isn't in the ledger", name,
                                                  reference.field, reference.kind, id)
                                      : known.status();
    }
  }
  if (name == "hypothesis") return check_prediction(body["prediction"]);
  if (name == "verdict") return agrees_with_its_experiment(body);
  return Status::ok();
}

// The plan is the one that was sealed, the seed the one that was committed to, the evidence of this experiment.
Status Ledger::agrees_with_its_experiment(const nlohmann::json& verdict) const {
  const std::string id = verdict["experiment"].is_string() ? verdict["experiment"].get<std::string>() : "";
  LATHE_ASSIGN(const LedgerEntry experiment, find(id));
  const nlohmann::json& plan = experiment.body["plan"];
  if (experiment.body["plan_digest"] != sha256_hex(plan.dump()))
    return corrupt("{}: its plan isn't what its digest says", id);
  if (verdict.contains("plan_digest") && verdict["plan_digest"] != experiment.body["plan_digest"])
    return invalid("verdict: its plan isn't the one that {} sealed", id);
  if (plan.is_object() && plan.contains("seed_digest")) {
    if (!verdict.contains("seed") || !verdict["seed"].is_number_integer())
      return invalid("verdict: 'seed' is missing; {} committed to one", id);
    if (sha256_hex(fmt::format("seed {}", verdict["seed"].get<uint64_t>())) != plan["seed_digest"].get<std::string>())
      return invalid("verdict: its seed isn't the one that {} committed to", id);
  }
  for (const std::string& name : names_in(verdict["evidence"])) {
    LATHE_ASSIGN(const LedgerEntry evidence, find(name));
    if (evidence.body.contains("experiment") && evidence.body["experiment"] != id)
      return invalid("verdict: {} is evidence of another experiment", name);
    if (evidence.seq <= experiment.seq)
      return invalid("verdict: {} is older than {}, which was to be sealed first", name, id);
  }
  return Status::ok();
}

Result<std::string> Ledger::append(const std::string& kind, const nlohmann::json& body, const std::string& author) {
  if (lock_ < 0) return invalid("{}: opened for reading", path_);
  if (author.empty()) return invalid("{}: an object of the ledger needs an author", kind);
  LATHE_RETURN_IF_ERROR(demand(kind, body));
  LATHE_ASSIGN(const std::string previous, head());
  Query last(db_, "SELECT coalesce(max(seq), 0) FROM record");
  if (!last.step()) return last.status();
  const int64_t seq = last.number(0) + 1;
  const std::string id = fmt::format("{}-{:06}", kind, seq), time = utc_now();
  const std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    digest = sha256_hex(text);

  LATHE_RETURN_IF_ERROR(execute(db_, "BEGIN IMMEDIATE"));
  Query record(db_, "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  record.bind(seq).bind(kind).bind(id).bind(time).bind(author).bind(digest).bind(previous);
  record.bind(record_hash(seq, kind, id, time, author, digest, previous)).step();
  Query object(db_, fmt::format("INSERT INTO {} VALUES (?, ?)", kind));
  object.bind(id).bind(text);
  if (record.status().is_ok()) object.step();
  for (const Query* query : {&record, &object})
    if (!query->status().is_ok()) {
      (void)execute(db_, "ROLLBACK");
      return query->status().within(path_);
    }
  LATHE_RETURN_IF_ERROR(execute(db_, "COMMIT"));
  return id;
}

Result<LedgerEntry> Ledger::find(const std::string& id) const {
  std::optional<LedgerEntry> found;
  const std::string kind = id.substr(0, id.rfind('-'));
  if (!kind_named(kind)) return not_found("{}: no object '{}' in the ledger", path_, id);
  Query query(db_, fmt::format("SELECT seq, time, author, body FROM record JOIN {0} USING (id) WHERE id = ?", kind));
  query.bind(id);
  if (!query.step())
    return query.status().is_ok() ? not_found("{}: no object '{}' in the ledger", path_, id) : query.status();
  nlohmann::json body = nlohmann::json::parse(query.text(3), nullptr, false);
  return LedgerEntry{query.number(0), kind, id, query.text(1), query.text(2), std::move(body)};
}

Status Ledger::each(const std::string& wanted, const std::function<void(const LedgerEntry&)>& told) const {
  if (!wanted.empty() && !kind_named(wanted)) return invalid("'{}' is no kind of the ledger", wanted);
  Query query(db_, "SELECT id, kind FROM record ORDER BY seq");
  while (query.step()) {
    if (!wanted.empty() && query.text(1) != wanted) continue;
    LATHE_ASSIGN(const LedgerEntry entry, find(query.text(0)));
    told(entry);
  }
  return query.status();
}

Result<std::string> Ledger::head() const {
  Query query(db_, "SELECT hash FROM record ORDER BY seq DESC LIMIT 1");
  if (query.step()) return query.text(0);
  if (!query.status().is_ok()) return query.status().within(path_);
  return kNoHash;
}

Status Ledger::verify() const {
  std::string previous = kNoHash;
  int64_t expected = 1, objects = 0;
  Query query(db_, "SELECT seq, kind, id, time, author, body_digest, previous, hash FROM record ORDER BY seq");
  for (; query.step(); ++expected) {
    const std::string kind = query.text(1), id = query.text(2);
    if (query.number(0) != expected) return corrupt("{}: record {} is missing", path_, expected);
    if (query.text(6) != previous ||
        query.text(7) != record_hash(expected, kind, id, query.text(3), query.text(4), query.text(5), previous))
      return corrupt("{}: the chain breaks at {}: its record was changed", path_, id);
    if (!kind_named(kind)) return corrupt("{}: {} is of an unknown kind", path_, id);
    Query body(db_, fmt::format("SELECT body FROM {} WHERE id = ?", kind));
    body.bind(id);
    if (!body.step()) return corrupt("{}: the body of {} is missing", path_, id);
    if (sha256_hex(body.text(0)) != query.text(5)) return corrupt("{}: the body of {} was changed", path_, id);
    if (kind == "verdict")
      if (Status s = agrees_with_its_experiment(nlohmann::json::parse(body.text(0))); !s.is_ok())
        return corrupt("{}: {}: {}", path_, id, s.message());
    previous = query.text(7);
  }
  if (!query.status().is_ok()) return query.status().within(path_);
  for (const Kind& kind : all_kinds()) {
    Query count(db_, fmt::format("SELECT count(*) FROM {}", kind.name));
    if (!count.step()) return count.status().within(path_);
    objects += count.number(0);
  }
  if (objects != expected - 1) return corrupt("{}: {} bodies for {} records", path_, objects, expected - 1);
  return Status::ok();
}

}  // namespace lathe
