#include "feedback/ledger.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "feedback/comparison_plan.h"
#include "feedback/sha256.h"

namespace lathe {
namespace {

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        ::testing::TempDir() + "ledger_test_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".db";
    for (const char* end : {"", "-wal", "-shm", ".lock"}) std::filesystem::remove(path_ + end);
  }
  std::unique_ptr<Ledger> writer() { return Ledger::open(path_, Ledger::Mode::kWrite).value(); }
  std::unique_ptr<Ledger> reader() { return Ledger::open(path_, Ledger::Mode::kRead).value(); }
  std::string add(Ledger& ledger, const char* kind, const nlohmann::json& body) {
    const auto id = ledger.append(kind, body, "test");
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    return id.is_ok() ? *id : "";
  }
  // An experiment, its evidence and its verdict.
  void tell_a_story(Ledger& ledger) {
    ComparisonPlan plan;
    plan.seed = 42;
    experiment_ = add(ledger, "experiment",
                      {{"plan", sealed_json(plan)}, {"plan_digest", plan_digest(plan)}, {"arms", {"a", "b"}}});
    evidence_ =
        add(ledger, "evidence", {{"type", "samples"}, {"reproduce", "lathe compare ..."}, {"experiment", experiment_}});
    add(ledger, "verdict", verdict());
  }
  nlohmann::json verdict() const {
    return {{"value", "improved"}, {"experiment", experiment_}, {"evidence", {evidence_}}, {"seed", 42}};
  }
  void tamper(const std::string& sql) {
    sqlite3* db;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << (message ? message : "");
    sqlite3_close(db);
  }
  std::string path_, experiment_, evidence_;
};

TEST_F(LedgerTest, KeepsWhatWasSaidInOrder) {
  auto ledger = writer();
  tell_a_story(*ledger);
  std::vector<std::string> kinds;
  ASSERT_TRUE(ledger->each("", [&](const LedgerEntry& e) { kinds.push_back(e.kind); }).is_ok());
  EXPECT_EQ(kinds, (std::vector<std::string>{"experiment", "evidence", "verdict"}));
  EXPECT_EQ(reader()->find(experiment_).value().body["arms"][1], "b");
  EXPECT_TRUE(ledger->verify().is_ok());
}

TEST_F(LedgerTest, AHypothesisNeedsWhatWouldRefuteIt) {
  auto ledger = writer();
  nlohmann::json why = {{"cause", "lock held across a wait"},
                        {"prediction", {{"metric", "ttft"}, {"direction", "lower"}, {"low", -10}, {"high", -5}}},
                        {"refuter", "the wait share stays"}};
  EXPECT_TRUE(ledger->append("hypothesis", why, "test").is_ok());
  nlohmann::json vague = why;
  vague.erase("refuter");
  EXPECT_FALSE(ledger->append("hypothesis", vague, "test").is_ok());
  vague = why;
  vague["prediction"].erase("high");
  EXPECT_FALSE(ledger->append("hypothesis", vague, "test").is_ok());
}

TEST_F(LedgerTest, AVerdictAgreesWithWhatWasSealed) {
  auto ledger = writer();
  tell_a_story(*ledger);
  for (const auto& [field, value] : {std::pair<const char*, nlohmann::json>{"seed", 43},
                                     {"plan_digest", "0"},
                                     {"evidence", nlohmann::json::array()},
                                     {"evidence", {"evidence-000099"}},
                                     {"experiment", "experiment-000077"}}) {
    nlohmann::json wrong = verdict();
    wrong[field] = value;
    EXPECT_FALSE(ledger->append("verdict", wrong, "test").is_ok()) << field;
  }
  EXPECT_FALSE(ledger->append("verdict", {{"value", "improved"}}, "test").is_ok());
  EXPECT_TRUE(ledger->append("verdict", verdict(), "test").is_ok());
}

TEST_F(LedgerTest, EvidenceComesAfterThePlan) {
  auto ledger = writer();
  const std::string early = add(*ledger, "evidence", {{"type", "samples"}, {"reproduce", "x"}});
  tell_a_story(*ledger);
  nlohmann::json wrong = verdict();
  wrong["evidence"] = {early};
  EXPECT_FALSE(ledger->append("verdict", wrong, "test").is_ok());
}

TEST_F(LedgerTest, NothingIsChangedOrTakenOut) {
  {
    tell_a_story(*writer());
  }
  sqlite3* db;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  for (const char* sql : {"UPDATE verdict SET body = '{}'", "DELETE FROM record", "DELETE FROM evidence",
                          "UPDATE record SET author = 'x'"})
    EXPECT_NE(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  sqlite3_close(db);
}

TEST_F(LedgerTest, SeesWhatWasChangedBehindItsBack) {
  const char* acts[] = {
      "DROP TRIGGER verdict_no_UPDATE; UPDATE verdict SET body = replace(body, 'improved', 'regressed')",
      "DROP TRIGGER record_no_UPDATE; UPDATE record SET author = 'somebody' WHERE seq = 2",
      "DROP TRIGGER record_no_DELETE; DELETE FROM record WHERE seq = 2",
      "DROP TRIGGER evidence_no_DELETE; DELETE FROM evidence",
      "INSERT INTO goal VALUES ('goal-000009', '{}')",
  };
  for (const char* act : acts) {
    SetUp();
    {
      tell_a_story(*writer());
    }
    ASSERT_TRUE(reader()->verify().is_ok());
    tamper(act);
    EXPECT_FALSE(reader()->verify().is_ok()) << act;
  }
}

TEST_F(LedgerTest, HasOneWriter) {
  auto first = writer();
  EXPECT_EQ(Ledger::open(path_, Ledger::Mode::kWrite).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(reader()->append("goal", {{"metric", "x"}}, "test").is_ok());
  first.reset();
  EXPECT_TRUE(Ledger::open(path_, Ledger::Mode::kWrite).is_ok());
}

TEST_F(LedgerTest, TablesOfChangesAndGatesAreThereFromTheStart) {
  auto ledger = writer();
  const std::string change = add(*ledger, "change", {{"base", "abc"}, {"diff_digest", "d"}});
  add(*ledger, "hunk", {{"change", change}, {"file", "x.cc"}, {"digest", "e"}});
  const std::string gate = add(*ledger, "gate", {{"change", change}, {"kind", "numerics"}, {"decider", "human"}});
  add(*ledger, "approval", {{"gate", gate}, {"who", "ada"}, {"change_hash", "h"}, {"evidence_hash", "i"}});
  EXPECT_FALSE(ledger->append("hunk", {{"change", "change-000099"}, {"file", "x"}, {"digest", "e"}}, "test").is_ok());
}

TEST_F(LedgerTest, ForeignBytesAreAnError) {
  std::ofstream(path_) << std::string(5000, 'x');
  const auto ledger = Ledger::open(path_, Ledger::Mode::kRead);
  EXPECT_FALSE(ledger.is_ok());
  EXPECT_FALSE(Ledger::open(path_ + ".absent", Ledger::Mode::kRead).is_ok());
}

}  // namespace
}  // namespace lathe
