#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "feedback/bench_machine.h"
#include "feedback/bench_model.h"
#include "feedback/bench_ops.h"
#include "feedback/history.h"
#include "feedback/op_times.h"
#include "feedback/spread.h"
#include "ops/registry.h"

namespace lathe {
namespace {

TEST(Spread, IsMedianAndHalfTheInterquartileRange) {
  const Spread s = spread_of({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_DOUBLE_EQ(s.half_iqr, 1);
  EXPECT_DOUBLE_EQ(spread_of({7}).median, 7);
  EXPECT_DOUBLE_EQ(spread_of({7}).half_iqr, 0);
}

TEST(NumberRow, GoesThroughJson) {
  const NumberRow row{.op = "linear",
                      .variant = "avx512",
                      .case_name = "rows1",
                      .device = "cpu",
                      .median_us = 1.5,
                      .spread_us = 0.25,
                      .bytes = 1e9,
                      .roof_us = 1.25,
                      .roof_fraction = 0.8,
                      .error_ratio = 1e-6,
                      .note = "from a twin"};
  const nlohmann::json j = to_json(row);
  for (const char* field : {"op", "variant", "case", "device", "median_us", "spread_us", "bytes", "flop", "roof_us",
                            "roof_fraction", "error_ratio", "error_of_tolerance", "tokens_per_s"})
    EXPECT_TRUE(j.contains(field)) << field;
  EXPECT_TRUE(j["flop"].is_null());
  EXPECT_EQ(to_json(number_row(j)), j);
}

// Lives from a simulated source: what is decided must not hang on a clock.
struct Simulated {
  std::vector<BenchItem> plan;
  BenchOptions options{.ops = "add", .cases = "*_f32", .lives = 5};

  Simulated() { plan = bench_plan(all_ops(), options).value(); }
  BenchReport report(double us, double bandwidth) {
    return bench_ops(plan, options,
                     [&](int life) -> Result<std::vector<LifeTiming>> {
                       LifeTiming t{.item = 0,
                                    .median_us = us + life,
                                    .calls = 10,
                                    .roof = {{bandwidth, bandwidth * 1.1}, {1e12, 1e12}}};
                       return std::vector{t};
                     })
        .value();
  }
};

TEST(BenchOps, TakesMediansOverLivesAndAFractionOfTheRoof) {
  Simulated s;
  const double bytes = static_cast<double>(s.plan[0].info().bytes);
  const BenchReport report = s.report(1000, bytes / 500e-6);  // the roof allows 500 us
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(*report.rows[0].median_us, 1002);
  EXPECT_DOUBLE_EQ(*report.rows[0].spread_us, 1);
  EXPECT_NEAR(*report.rows[0].roof_fraction, 500.0 / 1002, 1e-9);
  EXPECT_TRUE(report.refused.empty());
  EXPECT_LT(*report.rows[0].error_of_tolerance, 1);
}

TEST(BenchOps, RefusesWhatIsFasterThanTheMachine) {
  Simulated s;
  const double bytes = static_cast<double>(s.plan[0].info().bytes);
  const BenchReport report = s.report(100, bytes / 500e-6);
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_FALSE(report.rows[0].median_us.has_value());
}

TEST(BenchOps, TimesTheOracleOnlyWhereItIsChosen) {
  const std::vector<BenchItem> usual = bench_plan(all_ops(), {.ops = "add"}).value();
  EXPECT_FALSE(usual.empty());
  for (const BenchItem& item : usual) EXPECT_NE(item.variant_name(), "reference");
  Choices choice;
  ASSERT_TRUE(choice.add("add=reference").is_ok());
  const std::vector<BenchItem> chosen = bench_plan(all_ops(), {.ops = "add", .choices = &choice}).value();
  EXPECT_FALSE(chosen.empty());
  for (const BenchItem& item : chosen) EXPECT_EQ(item.variant_name(), "reference");
  EXPECT_FALSE(bench_plan(all_ops(), {.ops = "nothing"}).is_ok());
}

TEST(MergeLives, KeepsTokensAndRoofsConsistent) {
  NumberRow row{.op = "model",
                .variant = "bf16",
                .case_name = "decode_ctx1024",
                .median_us = 1000,
                .roof_us = 700,
                .tokens_per_s = 1000};
  NumberRow slower = row;
  slower.median_us = 3000, slower.tokens_per_s = 1e6 / 3000;
  NumberRow middle = row;
  middle.median_us = 2000, middle.tokens_per_s = 500;
  const std::vector<NumberRow> merged = merge_lives({{row}, {slower}, {middle}});
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_DOUBLE_EQ(*merged[0].median_us, 2000);
  EXPECT_NEAR(*merged[0].tokens_per_s, 500, 1e-9);
  EXPECT_NEAR(*merged[0].roof_fraction, 0.35, 1e-9);
  EXPECT_DOUBLE_EQ(*merged[0].spread_us, 500);
}

TEST(OpTimes, SumsByOperatorVariantAndLayer) {
  OpTimes times;
  for (int layer : {0, 1, 1}) times.begin("linear", "avx512", {1, layer}), times.end("linear", "avx512", {1, layer});
  times.begin("norm", "portable", {1, 0}), times.end("norm", "portable", {1, 0});
  EXPECT_NEAR(times.layer_us(0) + times.layer_us(1), times.op_us("linear") + times.op_us("norm"), 1e-9);
  EXPECT_NEAR(times.op_us("linear", 1), times.layer_us(1), 1e-9);
  EXPECT_EQ(times.by_variant().size(), 2u);
}

TEST(History, AppendsRowsWithCommitAndMachineToAFileThatExists) {
  const std::string path = ::testing::TempDir() + "history_test.jsonl";
  std::filesystem::remove(path);
  const std::vector<NumberRow> rows = {
      {.op = "add", .variant = "portable", .case_name = "a", .device = "cpu", .median_us = 1.0}};
  EXPECT_EQ(append_history(path, rows).code(), StatusCode::kNotFound);
  std::ofstream(path) << "{\"op\": \"older\"}\n";
  ASSERT_TRUE(append_history(path, rows).is_ok());
  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first), std::getline(file, second);
  EXPECT_EQ(nlohmann::json::parse(first)["op"], "older");
  const nlohmann::json line = nlohmann::json::parse(second);
  for (const char* field : {"op", "median_us", "commit", "build_id", "machine", "time"})
    EXPECT_TRUE(line.contains(field)) << field;
}

// Live clock: only what holds on any machine. Memory that fits a cache is read faster than it is written and copied.
TEST(BenchMachine, MeasuresEveryKindAtEverySize) {
  const std::vector<NumberRow> rows =
      bench_machine({.threads = 1, .largest_bytes = int64_t{4} << 20, .samples = 3}, nullptr).value();
  ASSERT_EQ(rows.size(), 9u);  // read, update, copy at 1 and 4 MB; three peaks
  for (const NumberRow& row : rows) {
    EXPECT_GT(*row.median_us, 0) << row.case_name;
    EXPECT_NE(row.bytes.has_value(), row.flop.has_value()) << row.case_name;
  }
}

}  // namespace
}  // namespace lathe
