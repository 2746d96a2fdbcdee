#include "feedback/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "feedback/importer.h"
#include "feedback/unit_partition.h"
#include "testing/golden.h"

namespace lathe {
namespace {

// Decode steps on a made-up clock: an operator in each of two kinds of layers, a wait for a lock, and a rest without
// probes. Lengths vary by `noise`, as a machine's do.
struct Made {
  uint64_t seed = 1;
  int steps = 40;
  double noise = 0.02;
  double kda_us = 300, mla_us = 500, wait_us = 50, rest_us = 40;
  int mla_calls = 1;
  std::string mla_variant = "avx2", threads = "2";
  double machine = 1;  // everything slower by that
};

Trace run_of(const Made& m) {
  std::mt19937_64 random(m.seed);
  std::normal_distribution<double> normal;
  double now = 1000;
  std::string json = "{\"traceEvents\":[";
  const auto add = [&](const std::string& name, const char* category, double from, double to, const std::string& args) {
    // In whole nanoseconds, as a recorder has them: rounded apart, an end could pass the end of what is around it.
    const int64_t begin = std::llround(from * 1000), end = std::llround(to * 1000);
    json += fmt::format(
        R"({}{{"ph":"X","name":"{}","cat":"{}","pid":1,"tid":1,"ts":{}.{:03},"dur":{}.{:03},"args":{{{}}}}})",
        json.back() == '[' ? "" : ",", name, category, begin / 1000, begin % 1000, (end - begin) / 1000,
        (end - begin) % 1000, args);
  };
  const auto spend = [&](double us) { now += std::max(1.0, us * m.machine * (1 + m.noise * normal(random))); };
  for (int step = 0; step < m.steps; ++step) {
    const double begin = now;
    for (const bool kda : {true, false}) {
      const double layer = now;
      for (int call = 0; call < (kda ? 1 : m.mla_calls); ++call) {
        const double op = now;
        spend(kda ? m.kda_us : m.mla_us);
        add(kda ? "kda_decode" : "sparse_mla", "op", op, now,
            fmt::format(R"("variant":"{}","rows":1,"layer":{})", kda ? "avx2" : m.mla_variant, kda ? 0 : 1));
      }
      add(kda ? "kda layer" : "sparse layer", "phase", layer, now, "");
    }
    const double wait = now;
    spend(m.wait_us);
    add("queue", "lock_wait", wait, now, R"("holder":2)");
    spend(m.rest_us);
    add("decode step", "phase", begin, now, "");
  }
  json +=
      R"({"ph":"X","name":"send","cat":"part","pid":1,"tid":2,"ts":1000,"dur":99}],"otherData":{"source":"lathe","setting.threads":")" +
      m.threads + "\"}}";
  json.replace(json.rfind("{\"ph\":\"X\",\"name\":\"send\""), 0, ",");
  return import_chrome(json, "made").value();
}

Explanation explained(const Made& a, const Made& b) { return explain({run_of(a)}, {run_of(b)}, {}).value(); }

TEST(Explain, PartsOfAUnitAddUpToIt) {
  const auto phases = partition_units(run_of({}), "");
  ASSERT_EQ(phases.size(), 1u);
  for (const Unit& u : phases.at("decode")) {
    int64_t sum = 0;
    for (const auto& [path, part] : u.parts) sum += part.ns;
    EXPECT_EQ(sum, u.window.length());
  }
  EXPECT_EQ(phases.at("decode").size(), 40u);
}

TEST(Explain, IdenticalBuildsCannotBeTold) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Explanation e = explained({.seed = seed}, {.seed = seed + 100});
    EXPECT_FALSE(e.differs) << e.verdict;
    EXPECT_EQ(e.verdict.rfind("can't tell", 0), 0u);
  }
  // Nor when the machine itself was a tenth slower in the other life, or noisy.
  EXPECT_FALSE(explained({}, {.seed = 2, .machine = 1.1}).differs);
  EXPECT_FALSE(explained({.noise = 0.3}, {.seed = 2, .noise = 0.3}).differs);
}

TEST(Explain, ASlowerOperatorIsNamedWithItsVariant) {
  const Explanation e = explained({}, {.seed = 2, .mla_us = 900});
  ASSERT_TRUE(e.differs);
  EXPECT_NE(e.findings.at(0).find("sparse layer > sparse_mla > avx2"), std::string::npos) << e.findings[0];
  const PhaseExplanation& p = e.phases.at(0);
  double delta = 0;
  for (const Contribution& c : p.rows) delta += c.delta_ns();
  EXPECT_NEAR(delta, p.b_ns - p.a_ns, 1);
  EXPECT_TRUE(p.reconciled);
  EXPECT_NEAR(p.realised, 1, 0.1);
}

TEST(Explain, AnotherVariantIsACount) {
  const Explanation e = explained({}, {.seed = 2, .mla_variant = "reference"});
  ASSERT_EQ(e.counts.size(), 2u) << e.verdict;  // one is gone, one has come
  EXPECT_NE((e.counts[0] + e.counts[1]).find("reference"), std::string::npos);
}

TEST(Explain, MoreCallsAreACount) {
  const Explanation e = explained({}, {.seed = 2, .mla_us = 250, .mla_calls = 2});
  ASSERT_FALSE(e.counts.empty());
  EXPECT_NE(e.counts[0].find("sparse_mla"), std::string::npos);
  EXPECT_NE(e.counts[0].find("1 -> 2 calls"), std::string::npos) << e.counts[0];
}

TEST(Explain, AWaitForALockIsNamed) {
  const Explanation e = explained({}, {.seed = 2, .wait_us = 700});
  ASSERT_FALSE(e.findings.empty());
  EXPECT_NE(e.findings[0].find("wait for lock queue"), std::string::npos) << e.findings[0];
  EXPECT_EQ(e.chains.size(), 2u);
}

TEST(Explain, WhatNoProbeSeesIsUnexplained) {
  const Explanation e = explained({}, {.seed = 2, .rest_us = 600});
  EXPECT_NE(e.findings.at(0).find("unexplained"), std::string::npos) << e.findings[0];
  EXPECT_FALSE(e.phases[0].reconciled);
}

TEST(Explain, SettingsThatDifferAreTold) {
  const Explanation e = explained({}, {.seed = 2, .threads = "1"});
  ASSERT_EQ(e.settings.size(), 1u);
  EXPECT_EQ(e.settings[0], "setting.threads: 2 -> 1");
}

TEST(Explain, SeveralLivesReplaceTheFloor) {
  std::vector<Trace> a, b;
  for (uint64_t life = 1; life <= 4; ++life) {
    a.push_back(run_of({.seed = life})), b.push_back(run_of({.seed = life + 10, .mla_us = 530}));
  }
  EXPECT_FALSE(explain({a[0]}, {b[0]}, {}).value().differs);
  const Explanation e = explain(a, b, {}).value();
  ASSERT_TRUE(e.differs);
  EXPECT_NE(e.findings.at(0).find("sparse_mla"), std::string::npos) << e.findings[0];
}

TEST(Explain, JsonAndTextHoldTheSameSum) {
  const Explanation e = explained({}, {.seed = 2, .mla_us = 900});
  const nlohmann::json j = to_json(e);
  double sum = 0;
  for (const auto& row : j["phases"][0]["contributions"]) sum += row["delta_us"].get<double>();
  EXPECT_NEAR(sum, j["phases"][0]["delta_us"].get<double>(), 0.01);
  EXPECT_NE(to_text(e, 30).find("= all"), std::string::npos);
}

TEST(Explain, TheLoaderOfAKnownPairIsNamedAndNoKernelIs) {
  const std::string folder = testing::source_path("../shared/traces/");
  if (!std::filesystem::exists(folder + "kineto_resnet50_workers0.json.gz")) GTEST_SKIP() << "the traces aren't here";
  const Trace a = import_trace(folder + "kineto_resnet50_workers0.json.gz").value();
  const Trace b = import_trace(folder + "kineto_resnet50_workers4.json.gz").value();
  const Explanation e = explain({a}, {b}, {}).value();
  ASSERT_EQ(e.phases.size(), 1u);
  const PhaseExplanation& p = e.phases[0];
  EXPECT_NEAR((p.b_sum_ns - p.a_sum_ns) / 1e6, -210.8, 0.05);
  ASSERT_FALSE(e.findings.empty());
  EXPECT_NE(e.findings[0].find("enumerate(DataLoader)"), std::string::npos) << e.findings[0];
  EXPECT_NEAR(p.realised, 0.52, 0.02);
  ASSERT_FALSE(e.device.empty());
  EXPECT_NE(e.device[0].find("busy 604 ms -> 614 ms (+10.9 ms)"), std::string::npos) << e.device[0];
}

}  // namespace
}  // namespace lathe
