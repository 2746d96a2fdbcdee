#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "feedback/child_process.h"

namespace lathe {
namespace {

std::string binary() { return (std::filesystem::path(own_binary()).parent_path().parent_path() / "lathe").string(); }

ChildOutput lathe(const std::string& arguments) {
  return run_child({"/bin/sh", "-c", binary() + " " + arguments + " 2>/dev/null"}).value();
}

// The two that read a clock are for scripts/soak statistics, on a quiet machine.
// The oracle takes many times as long as any variant.
TEST(Compare, DISABLED_FindsTheOracleSlowAndSaysWhere) {
  const std::string file = ::testing::TempDir() + "compare_test.json",
                    ledger = ::testing::TempDir() + "compare_test.ledger";
  for (const char* end : {"", "-wal", "-shm", ".lock"}) std::filesystem::remove(ledger + end);
  const ChildOutput child = lathe("compare --op norm default reference --cases 'rms_rows*' --seconds 5 --out " + file +
                                  " --ledger " + ledger);
  EXPECT_EQ(child.exit_code, 10) << child.stdout_text;
  EXPECT_NE(child.stdout_text.find("variant default -> reference"), std::string::npos) << child.stdout_text;
  EXPECT_NE(child.stdout_text.find("only this was exchanged"), std::string::npos) << child.stdout_text;
  const ChildOutput again = lathe("compare --replay " + file);
  EXPECT_EQ(again.stdout_text, child.stdout_text);
  EXPECT_EQ(lathe("ledger verify --file " + ledger).exit_code, 0);
  EXPECT_NE(lathe("ledger show verdict --file " + ledger).stdout_text.find("B is worse"), std::string::npos);
}

TEST(Compare, BadQuestionsAreUsage) {
  for (const char* arguments :
       {"compare a b", "compare --op norm a", "compare --op nothing a b", "compare --op norm default nosuchvariant,",
        "compare --op norm default,threads=x default", "compare --op norm /nowhere/lathe default",
        "compare --replay /nowhere"})
    EXPECT_EQ(lathe(arguments).exit_code, 2) << arguments;
}

// A few of each kind; lathe selftest runs all.
TEST(Selftest, DISABLED_CatchesCheatsAndPassesTheHonest) {
  for (const char* names :
       {"cached_by_slot", "lower_precision", "other_build", "nothing", "beyond_its_end", "honest"}) {
    const ChildOutput child = lathe(std::string("selftest --json ") + names);
    EXPECT_EQ(child.exit_code, 0) << child.stdout_text;
  }
}

}  // namespace
}  // namespace lathe
