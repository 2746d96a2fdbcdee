#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

// The memory of all experiments: a SQLite file to which objects are only ever added. A table a kind (goal, hypothesis,
// experiment, evidence, verdict, change, hunk, gate, approval, ...) holds the bodies; the table `record` chains them:
// each record's hash covers its body's digest and the hash before it, so that nothing can be changed or taken out
// unseen. Triggers refuse updates and deletes; corrections are new objects that name the old one.
//
// One writer at a time; readers never wait. A ledger that doesn't verify can still be read.

struct sqlite3;

namespace lathe {

struct LedgerEntry {
  int64_t seq = 0;
  std::string kind, id, time, author;
  nlohmann::json body;
};

class Ledger {
 public:
  enum class Mode { kRead, kWrite };  // kWrite makes the file where there is none, and waits for no other writer
  static Result<std::unique_ptr<Ledger>> open(const std::string& path, Mode mode);
  ~Ledger();
  Ledger(const Ledger&) = delete;

  // The new object's id, such as "experiment-000012". Refused: unknown kinds; a body without what its kind demands (a
  // hypothesis without prediction and refuter, a verdict without evidence); references to what isn't there; a verdict
  // whose plan or seed isn't what its experiment sealed.
  Result<std::string> append(const std::string& kind, const nlohmann::json& body, const std::string& author);

  Result<LedgerEntry> find(const std::string& id) const;
  // In the order in which they came; kind "": all.
  Status each(const std::string& kind, const std::function<void(const LedgerEntry&)>& told) const;

  // Chain, bodies and what verdicts refer to. The first thing that is wrong, with its id.
  Status verify() const;
  // Hash of the last record: a digest of the whole ledger. 64 zeros when empty.
  Result<std::string> head() const;

  static std::vector<std::string> kinds();

 private:
  explicit Ledger(std::string path) : path_(std::move(path)) {}
  Status prepare();
  Status demand(const std::string& kind, const nlohmann::json& body) const;
  Status agrees_with_its_experiment(const nlohmann::json& verdict) const;

  std::string path_;
  sqlite3* db_ = nullptr;
  int lock_ = -1;
};

}  // namespace lathe
