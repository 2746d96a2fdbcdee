#include "feedback/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "feedback/collect_trace.h"
#include "feedback/comparison.h"
#include "feedback/expert_dispatch_lab.h"
#include "feedback/lab_kernel.h"
#include "feedback/report_plot.h"
#include "feedback/trace_writer.h"

namespace lathe {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Nothing from elsewhere, nothing that runs, and every element that is opened is closed.
void expect_sound_page(const std::string& page) {
  for (const char* foreign : {"http://", "https://", "<script", "<link", "<img", "@import", "url(", "javascript:"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  for (const char* element : {"section", "figure", "svg", "table", "details", "div", "ul", "li", "tr", "text"}) {
    const std::string open = std::string("<") + element;
    EXPECT_EQ(count(page, open + ">") + count(page, open + " "), count(page, "</" + std::string(element) + ">"))
        << element;
  }
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
  EXPECT_NE(page.find("@media print"), std::string::npos);
}

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Report, AComparisonShowsItsVerdictAndEveryLife) {
  ComparisonPlan plan;
  SimulatedSource source({.process = 0.01, .effect = {0.2, 0}}, 3);
  const Comparison c = compare(source, plan).value();
  nlohmann::json j = to_json(c, plan, source.strata());
  j["kind"] = "comparison", j["place"] = "norm<x>";
  for (const char* arm : {"a", "b"})
    j[arm] = {{"text", arm}, {"build_id", "0"}, {"variant", ""}, {"settings", nlohmann::json::object()}};
  const auto page = report_html({file_with("report_comparison.json", j.dump())});
  ASSERT_TRUE(page.is_ok()) << page.status().message();
  expect_sound_page(*page);
  EXPECT_NE(page->find(verdict_words(c.verdict)), std::string::npos);
  EXPECT_NE(page->find("norm&lt;x&gt;"), std::string::npos);
  // Each life in its case's figure, and in run order for the first case.
  EXPECT_GE(count(*page, "<circle"), static_cast<int>(3 * c.lives.size()));
}

TEST(Report, LabsRelationsBenchAndTracesHaveSections) {
  Recorder recorder({});
  run_dispatch_lab({.layers = 3, .probes = &recorder});
  const std::string trace = ::testing::TempDir() + "report_trace.json";
  ASSERT_TRUE(write_chrome(collect(recorder, {}), trace).is_ok());
  KernelLabReport lab;
  lab.forms.push_back({.us = 10}), lab.verdict = "no defect";
  const nlohmann::json relations = {{"kind", "relations"},
                                    {"failures", 0},
                                    {"relations", nlohmann::json::array({{{"path", "chunks of 3"},
                                                                          {"base", "plain"},
                                                                          {"dtype", "f32"},
                                                                          {"bit_equal", false},
                                                                          {"error", 1e-7},
                                                                          {"tolerance", 1e-5},
                                                                          {"must_fail", false},
                                                                          {"as_expected", true},
                                                                          {"errors", {{16, 1e-7}, {32, 2e-7}}},
                                                                          {"address", ""},
                                                                          {"failing_lengths", ""},
                                                                          {"smallest_failing_length", 0}}})}};
  const nlohmann::json bench = {{"machine", {{"cpu", "one"}}},
                                {"build_id", "0"},
                                {"rows", nlohmann::json::array({{{"op", "add"},
                                                                 {"variant", "avx2"},
                                                                 {"case", "rows1"},
                                                                 {"median_us", 10.0},
                                                                 {"roof_us", 5.0},
                                                                 {"bytes", 4e5},
                                                                 {"flop", 1e5},
                                                                 {"error_ratio", 0.0}}})}};
  const auto page = report_html({file_with("report_lab.json", to_json(lab).dump()),
                                 file_with("report_relations.json", relations.dump()),
                                 file_with("report_bench.json", bench.dump()), trace});
  ASSERT_TRUE(page.is_ok()) << page.status().message();
  expect_sound_page(*page);
  for (const char* part :
       {"Case study: kernel", "Paths of the model", "Roofline", "Timeline of report_trace.json", "work queue"})
    EXPECT_NE(page->find(part), std::string::npos) << part;
}

TEST(Report, WhatIsNoResultIsSaid) {
  EXPECT_FALSE(report_html({"/nowhere.json"}).is_ok());
  EXPECT_FALSE(report_html({file_with("report_bad.json", R"({"kind": "comparison"})")}).is_ok());
}

TEST(Report, NumbersAreShort) {
  EXPECT_EQ(number_text(0.012345), "0.0123");
  EXPECT_EQ(number_text(1.5e-7), "1.5e-7");
  EXPECT_EQ(number_text(12345), "12345");
  EXPECT_EQ(number_text(34.56), "34.6");
}

}  // namespace
}  // namespace lathe
