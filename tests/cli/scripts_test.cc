#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "feedback/child_process.h"

// The checks of the house must be able to fail.
namespace lathe {
namespace {

namespace fs = std::filesystem;

class ScriptsTest : public ::testing::Test {
 protected:
  ScriptsTest() {
    fs::remove_all(tree_);
    fs::create_directories(tree_ / "src");
  }
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((tree_ / file).parent_path());
    std::ofstream(tree_ / file) << text;
  }
  int run(const std::string& script) {
    return run_child(
               {"/bin/sh", "-c",
                "LATHE_TREE=" + tree_.string() + " " + (root_ / "scripts" / script).string() + " >/dev/null 2>&1"})
        .value()
        .exit_code;
  }
  fs::path root_ = fs::current_path();  // ctest and scripts/test run at the root of the repository
  fs::path tree_ = fs::path(::testing::TempDir()) / "lathe_scripts_test";

  void SetUp() override {
    if (!fs::exists(root_ / "scripts" / "check-order")) GTEST_SKIP() << "not run at the root of the repository";
    write("include/lathe/engine.h", "#include \"lathe/status.h\"\n");
    write("src/base/view.h", "#include <cstdint>\n");
    write("src/ops/op.h", "#include \"base/view.h\"\n");
    write("src/cli/generate.cc", "#include \"lathe/engine.h\"\n#include \"cli/command.h\"\n");
  }
};

TEST_F(ScriptsTest, OrderOfTheHouseHolds) { EXPECT_EQ(run("check-order"), 0); }

TEST_F(ScriptsTest, OrderSeesAnIncludeToTheRight) {
  write("src/base/arena.h", "#include \"ops/op.h\"\n");
  EXPECT_EQ(run("check-order"), 1);
}

TEST_F(ScriptsTest, OrderSeesAFolderWithoutAPlace) {
  write("src/helpers/strings.h", "#include \"base/view.h\"\n");
  EXPECT_EQ(run("check-order"), 1);
}

TEST_F(ScriptsTest, OrderKeepsPublicCommandsToThePublicApi) {
  write("src/cli/chat.cc", "#include \"ops/op.h\"\n");
  EXPECT_EQ(run("check-order"), 1);
}

TEST_F(ScriptsTest, OrderKeepsThePublicApiAlone) {
  write("include/lathe/other.h", "#include \"base/view.h\"\n");
  EXPECT_EQ(run("check-order"), 1);
}

TEST_F(ScriptsTest, NewOpRefusesBadNamesAndExistingOnes) {
  fs::copy(root_ / "src" / "ops" / "add", tree_ / "src" / "ops" / "add", fs::copy_options::recursive);
  fs::copy(root_ / "src" / "ops" / "registry.cc", tree_ / "src" / "ops" / "registry.cc");
  EXPECT_EQ(run("new-op Bad-Name"), 2);
  EXPECT_EQ(run("new-op add"), 2);
  EXPECT_EQ(run("new-op zz_last"), 0);
  EXPECT_TRUE(fs::exists(tree_ / "src" / "ops" / "zz_last" / "zz_last.h"));
}

}  // namespace
}  // namespace lathe
