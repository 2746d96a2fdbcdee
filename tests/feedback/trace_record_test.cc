#include <gtest/gtest.h>

#include <thread>

#include "base/traced_mutex.h"
#include "feedback/collect_trace.h"
#include "feedback/expert_dispatch_lab.h"
#include "feedback/explain.h"
#include "feedback/importer.h"
#include "feedback/lab_concurrency.h"
#include "feedback/overlap.h"
#include "feedback/trace_writer.h"

// From probes to tables, and through a file back to tables.
namespace lathe {
namespace {

Trace through_a_file(const Trace& t) { return import_chrome(chrome_json(t), "t.json").value(); }

// Decode steps of a made-up engine; `slow_us` of one operator are added by injection.
Trace decode_run(int steps, const std::vector<Injection>& injections, int calls = 1) {
  Recorder recorder({.injections = injections});
  for (int step = 0; step < steps; ++step) {
    const ProbeSpan whole(&recorder, "decode step", nullptr, 1, {step, -1});
    for (int layer = 0; layer < 4; ++layer) {
      for (const char* op : {"linear", layer % 2 ? "sparse_mla" : "kda_decode"})
        for (int call = 0; call < calls; ++call) {
          const ProbeSpan o(&recorder, op, "avx2", 1, {step, layer});
          const int64_t until = monotonic_ns() + 200000;
          while (monotonic_ns() < until) {
          }
        }
    }
  }
  return collect(recorder, {{"threads", "1"}});
}

TEST(TraceRecord, ThePlacesOfSpansSurviveTheFile) {
  const Trace t = through_a_file(decode_run(3, {}));
  EXPECT_EQ(t.source, "lathe");
  EXPECT_EQ(t.facts.at("otherData.setting.threads"), "1");
  int ops = 0;
  for (const Span& s : t.spans)
    if (s.kind == SpanKind::kOperator) {
      ++ops;
      EXPECT_EQ(t.arg(s, "variant"), "avx2");
      EXPECT_EQ(t.text(t.spans[s.parent].name),
                t.arg(s, "layer") == "0" || t.arg(s, "layer") == "2" ? "kda layer" : "sparse layer");
    }
  EXPECT_EQ(ops, 24);
}

TEST(TraceRecord, InjectionsAreVisible) {
  const Trace t = through_a_file(decode_run(1, {Injection::parse("linear=5").value()}));
  EXPECT_EQ(t.facts.at("otherData.injected"), "linear=5us");
}

TEST(TraceRecord, LostEventsAreTold) {
  Recorder recorder({.most_events_per_thread = 4});
  for (int i = 0; i < 5; ++i) const ProbeSpan span(&recorder, "x");
  const Trace t = through_a_file(collect(recorder));
  EXPECT_EQ(t.lost_events, 6);
  EXPECT_NE(to_text(summarise(t), 5).find("lower bounds"), std::string::npos);
}

TEST(Explain, ContributionsAddUpAndTheUnexplainedIsARow) {
  const Explanation e = explain({through_a_file(decode_run(12, {}))},
                                {through_a_file(decode_run(12, {Injection::parse("sparse_mla=600").value()}))}, {})
                            .value();
  ASSERT_EQ(e.phases.size(), 1u);
  const PhaseExplanation& p = e.phases[0];
  double a = 0, b = 0;
  bool unexplained = false;
  for (const Contribution& c : p.rows) a += c.a_ns, b += c.b_ns, unexplained |= c.path.back() == "unexplained";
  EXPECT_NEAR(a, p.a_ns, 1);
  EXPECT_NEAR(b, p.b_ns, 1);
  EXPECT_TRUE(unexplained);
  EXPECT_TRUE(e.differs);
  EXPECT_NE(e.findings.at(0).find("sparse layer > sparse_mla > avx2"), std::string::npos) << e.findings[0];
  EXPECT_EQ(e.settings.size(), 1u) << "the injection is a setting";
}

TEST(Explain, CountsNeedNoClock) {
  const Explanation e = explain({decode_run(10, {})}, {decode_run(10, {}, 2)}, {}).value();
  ASSERT_FALSE(e.counts.empty());
  EXPECT_NE(e.counts[0].find("-> "), std::string::npos) << e.counts[0];
}

TEST(Explain, OneRunShowsWhereItsTimeGoes) {
  const Explanation e = explain({decode_run(5, {})}, {}, {}).value();
  EXPECT_EQ(e.verdict, "one run: where its time goes");
  EXPECT_NE(to_text(e, 20).find("kda_decode"), std::string::npos);
}

TEST(ConcurrencyLab, TheIntervalIsThatOfOrderStatistics) {
  const PairedRatio r = paired_ratio({-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7});
  EXPECT_NEAR(std::log(r.median), 0.3, 1e-12);
  EXPECT_NEAR(std::log(r.low), 0.0, 1e-12);  // the second of nine: 2·10/512 lie outside
  EXPECT_NEAR(std::log(r.high), 0.6, 1e-12);
}

// Order of events decides here, no clock: the traces of the twins.
TEST(ConcurrencyLab, TheTraceNamesTheLockOfTheDefectiveTwinOnly) {
  for (const bool defective : {true, false}) {
    const auto look = [&] {
      Recorder recorder({});
      run_dispatch_lab({.hold_lock_across_wait = defective, .layers = 24, .probes = &recorder});
      return find_overlap(through_a_file(collect(recorder)), {}).value();
    };
    OverlapReport r = look();
    for (int again = 0; again < 4 && r.never.empty() == defective; ++again)
      r = look();  // a busy machine may hide it once
    if (!defective) {
      EXPECT_TRUE(r.never.empty());
      continue;
    }
    ASSERT_EQ(r.never.size(), 1u);
    EXPECT_EQ(r.never[0].lock, "work queue");
    EXPECT_EQ(r.never[0].holder_span, "expert dispatch");
    EXPECT_EQ(r.never[0].held_across, "device wait");
    EXPECT_NE(r.never[0].waiter.find("transfer"), std::string::npos);
  }
}

}  // namespace
}  // namespace lathe
