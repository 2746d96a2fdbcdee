#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "feedback/child_process.h"

// The command line as people and scripts meet it: exit codes, and messages that say what was wrong.
namespace lathe {
namespace {

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

// The binary of this build lies one folder above the tests.
std::string binary() { return (std::filesystem::path(own_binary()).parent_path().parent_path() / "lathe").string(); }

Outcome lathe(const std::string& arguments) {
  const std::string err_file = ::testing::TempDir() + "lathe_cli_stderr";
  const ChildOutput child = run_child({"/bin/sh", "-c", binary() + " " + arguments + " 2>" + err_file}).value();
  std::stringstream err;
  err << std::ifstream(err_file).rdbuf();
  return {child.exit_code, child.stdout_text, err.str()};
}

TEST(Command, HelpIsAsAskedAndNamesEveryCommand) {
  const Outcome help = lathe("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"verify", "bench", "logits", "version"})
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  for (const char* command :
       {"verify", "bench ops", "bench machine", "bench model", "bench serve", "logits", "serve", "check-config"}) {
    const Outcome one = lathe(std::string(command) + " --help");
    EXPECT_EQ(one.exit_code, 0) << command;
    EXPECT_NE(one.out.find("Examples:"), std::string::npos) << command;
  }
}

TEST(Command, OutputThatIsLostIsAnError) {
  for (const char* arguments : {"version", "--help", "--identity", "serve --manual"}) {
    const Outcome o = lathe(std::string(arguments) + " > /dev/full");
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_NE(o.err.find("No space left"), std::string::npos) << arguments << ": " << o.err;
  }
}

TEST(Command, UsageErrorsAreTwoAndGoToStderr) {
  for (const char* arguments :
       {"", "nonsense", "verify --threads 0", "verify --threads many", "verify --device gpu", "verify --variant add",
        "verify --variant", "bench", "bench nonsense", "verify --no-such-option", "verify --variant add=nope",
        "verify --variant nope=reference", "synth a b --seed -1", "synth a b --seed 18446744073709551616",
        "tokenize --model a --ids 1,,2", "logits --chunk 0", "bench serve", "bench model",
        "bench model no/such/file.json"}) {
    const Outcome o = lathe(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_EQ(o.out, "") << arguments;
    EXPECT_EQ(o.err.rfind("lathe: ", 0), 0u) << arguments << ": " << o.err;
  }
}

TEST(Command, BadInputIsTwoAndNamesWhatItIs) {
  const Outcome no_op = lathe("verify rope");
  EXPECT_EQ(no_op.exit_code, 2);
  EXPECT_NE(no_op.err.find("no operator matches 'rope'; there are add, "), std::string::npos) << no_op.err;
  const Outcome no_variant = lathe("verify add --variant add=fast");
  EXPECT_EQ(no_variant.exit_code, 2);
  EXPECT_NE(no_variant.err.find("no such variant"), std::string::npos) << no_variant.err;
  EXPECT_EQ(lathe("bench ops nothing").exit_code, 2);
}

TEST(Command, VerifyReportsRowsInTheSchema) {
  const Outcome o = lathe("verify add --json");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const nlohmann::json report = nlohmann::json::parse(o.out);
  ASSERT_FALSE(report["rows"].empty());
  for (const char* field : {"op", "variant", "case", "device", "median_us", "spread_us", "bytes", "flop", "roof_us",
                            "roof_fraction", "error_ratio", "error_of_tolerance", "tokens_per_s"})
    EXPECT_TRUE(report["rows"][0].contains(field)) << field;
  EXPECT_TRUE(report["failures"].empty());
  EXPECT_GT(report["checks"], 0);
}

TEST(Command, VerifyRunsOnSim) { EXPECT_EQ(lathe("verify add --device sim").exit_code, 0); }

TEST(Command, VariantNarrowsWhatIsVerified) {
  const Outcome o = lathe("verify add --variant add=portable --json");
  for (const auto& row : nlohmann::json::parse(o.out)["rows"]) EXPECT_EQ(row["variant"], "portable");
}

TEST(Command, IdentityIsOneObject) {
  const Outcome o = lathe("--identity");
  EXPECT_EQ(o.exit_code, 0);
  const nlohmann::json identity = nlohmann::json::parse(o.out);
  EXPECT_EQ(identity["build_id"].get<std::string>().size(), 16u);
  EXPECT_TRUE(identity["operators"].contains("linear"));
  EXPECT_EQ(lathe("version --json").out, o.out);
}

// Judged from outside, by the same binary as both.
TEST(Command, VerifyAndBenchJudgeACandidate) {
  const Outcome right = lathe("verify add --candidate " + binary() + " --json");
  EXPECT_EQ(right.exit_code, 0) << right.err;
  const nlohmann::json report = nlohmann::json::parse(right.out);
  EXPECT_FALSE(report["rows"].empty());
  EXPECT_TRUE(report["failures"].empty());
  const Outcome nowhere = lathe("verify add --candidate /nowhere");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_NE(nowhere.err.find("/nowhere: no lathe binary there"), std::string::npos) << nowhere.err;
  EXPECT_EQ(lathe("bench ops add --candidate /bin/true").exit_code, 2);
}

TEST(Command, ParametersAreAllDescribed) {
  const Outcome o = lathe("params --json");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  std::set<std::string> names;
  for (const auto& p : nlohmann::json::parse(o.out)) {
    names.insert(p["name"]);
    for (const char* field : {"type", "numerics", "meaning"}) EXPECT_NE(p[field], "") << p["name"];
  }
  for (const char* name : {"threads", "step_tokens", "drafts", "variants: kda_scan"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Command, ReportWritesAPage) {
  const std::string json = ::testing::TempDir() + "lathe_cli_bench.json",
                    page = ::testing::TempDir() + "lathe_cli_report.html";
  std::ofstream(json) << R"({"machine": {"cpu": "one"}, "build_id": "0", "rows": []})";
  EXPECT_EQ(lathe("report " + json + " -o " + page).exit_code, 0);
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_EQ(text.str().rfind("<!doctype html>", 0), 0u);
  EXPECT_EQ(lathe("report").exit_code, 2);
  EXPECT_EQ(lathe("report /nowhere").exit_code, 2);
}

TEST(Command, LatheIsaLowersTheChoice) {
  const Outcome o = lathe("version --json");
  const ChildOutput low = run_child({"/bin/sh", "-c", "LATHE_ISA=portable " + binary() + " version --json"}).value();
  EXPECT_EQ(nlohmann::json::parse(low.stdout_text)["isa"], "portable");
}

}  // namespace
}  // namespace lathe
