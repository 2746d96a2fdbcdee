#include <gtest/gtest.h>
#include <zlib.h>

#include "feedback/importer.h"
#include "feedback/overlap.h"
#include "feedback/trace_writer.h"

namespace lathe {
namespace {

Trace chrome(const std::string& events) {
  return import_chrome("{\"traceEvents\": [" + events + "]}", "t.json").value();
}

const Span* span_named(const Trace& t, const std::string& name) {
  for (const Span& s : t.spans)
    if (t.text(s.name) == name) return &s;
  return nullptr;
}

TEST(TraceImport, TimesKeepTheirNanoseconds) {
  // A double has only a quarter of a microsecond left here.
  const Trace t = chrome(R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1661938466265032.123,"dur":0.456})");
  EXPECT_EQ(t.spans.at(0).begin, 1661938466265032123);
  EXPECT_EQ(t.spans.at(0).length(), 456);
  EXPECT_EQ(chrome(R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":"12","dur":1e2})").spans.at(0).end, 112000);
}

TEST(TraceImport, NanosecondsAreSeenBySize) {
  const Trace t = chrome(R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1661938466265032123,"dur":456})");
  EXPECT_EQ(t.spans.at(0).begin, 1661938466265032123);
  EXPECT_EQ(t.spans.at(0).length(), 456);
  EXPECT_EQ(t.warnings.size(), 1u);
}

TEST(TraceImport, TimesThatCannotBelongTogetherAreLeftOut) {
  const Trace t = chrome(R"(
    {"ph":"X","name":"a","pid":1,"tid":1,"ts":100,"dur":1},
    {"ph":"X","name":"b","pid":1,"tid":1,"ts":999999999999999,"dur":1},
    {"ph":"X","name":"c","pid":1,"tid":1,"ts":101,"dur":9e14})");
  EXPECT_EQ(t.spans.size(), 1u);
  EXPECT_EQ(t.warnings.size(), 1u);
}

TEST(TraceImport, BeginsAndEndsOutOfOrderAndUnbalanced) {
  const Trace t = chrome(R"(
    {"ph":"E","name":"outer","pid":1,"tid":1,"ts":100},
    {"ph":"B","name":"inner","pid":1,"tid":1,"ts":20},
    {"ph":"B","name":"outer","pid":1,"tid":1,"ts":10},
    {"ph":"E","name":"stray","pid":1,"tid":2,"ts":5},
    {"ph":"B","name":"endless","pid":1,"tid":2,"ts":50},
    {"ph":"X","name":"late","pid":1,"tid":3,"ts":150,"dur":50})");
  const Span *outer = span_named(t, "outer"), *inner = span_named(t, "inner"), *endless = span_named(t, "endless");
  ASSERT_TRUE(outer && inner && endless);
  EXPECT_EQ(outer->end, 100000);
  EXPECT_FALSE(outer->open);
  EXPECT_EQ(inner->end, 100000);  // with what encloses it
  EXPECT_TRUE(inner->open);
  EXPECT_EQ(endless->end, 200000);  // with the trace
  EXPECT_EQ(t.text(t.spans[inner->parent].name), "outer");
  EXPECT_EQ(t.warnings.size(), 3u);
}

TEST(TraceImport, ATruncatedFileGivesItsBeginning) {
  std::string text = "{\"traceEvents\": [";
  for (int i = 0; i < 50; ++i)
    text += std::string(i ? "," : "") + R"({"ph":"X","name":"op","cat":"cpu_op","pid":1,"tid":1,"ts":)" +
            std::to_string(i * 10) + R"(,"dur":5,"args":{"Call stack":"a;b","Input Dims":[[1,2],[]]}})";
  text += "]}";
  EXPECT_EQ(import_chrome(text, "t").value().spans.size(), 50u);
  int before = 0;
  for (size_t cut = 20; cut < text.size(); cut += 7) {
    const auto t = import_chrome(text.substr(0, cut), "t");
    if (!t.is_ok()) continue;  // no event is whole yet
    EXPECT_TRUE(t.value().truncated);
    EXPECT_FALSE(t.value().warnings.empty());
    EXPECT_GE(static_cast<int>(t.value().spans.size()), before);
    before = static_cast<int>(t.value().spans.size());
  }
  EXPECT_GE(before, 49);
  // The list alone, as Chrome itself allows it to stand.
  EXPECT_EQ(import_chrome(R"([{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1},)", "t").value().spans.size(), 1u);
}

TEST(TraceImport, OneBadEventCostsOneEvent) {
  const Trace t = chrome(R"(
    {"ph":"X","name":"first","pid":1,"tid":1,"ts":1,"dur":1},
    {"ph":"X","name":"broken","pid":1,"tid":1,"ts":2,"dur":1,"args":{"a" 5}},
    {"ph":"X","name":"nan","pid":1,"tid":1,"ts":3,"dur":1,"args":{"occupancy": NaN, "x": -Infinity}},
    {"ph":"X","name":"path","pid":1,"tid":1,"ts":4,"dur":1,"args":{"file":"C:\users\q"}},
    {"ph":"X","name":"negative","pid":1,"tid":1,"ts":5,"dur":-1},
    {"ph":"X","name":"timeless","pid":1,"tid":1,"dur":1},
    {"ph":"X","name":"last","pid":1,"tid":1,"ts":9,"dur":1})");
  for (const char* name : {"first", "nan", "path", "last"}) EXPECT_TRUE(span_named(t, name)) << name;
  for (const char* name : {"broken", "negative", "timeless"}) EXPECT_FALSE(span_named(t, name)) << name;
  EXPECT_EQ(t.warnings.size(), 3u);
  EXPECT_EQ(t.arg(*span_named(t, "path"), "file"), "C:\\users\\q");
}

TEST(TraceImport, GzipAlsoWhenItIsCutOff) {
  std::string text = "[";
  for (int i = 0; i < 20000; ++i)
    text += R"({"ph":"X","name":"n)" + std::to_string(i * 7919 % 20000) + R"(","pid":1,"tid":1,"ts":)" +
            std::to_string(i) + R"(,"dur":0.5},)";
  std::vector<unsigned char> packed(compressBound(text.size()) + 64);
  z_stream z{};
  ASSERT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(text.data()), z.avail_in = static_cast<uInt>(text.size());
  z.next_out = packed.data(), z.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  const std::string_view bytes(reinterpret_cast<char*>(packed.data()), z.total_out);
  EXPECT_EQ(import_trace_bytes(bytes, "t.gz").value().spans.size(), 20000u);
  const Trace half = import_trace_bytes(bytes.substr(0, bytes.size() / 2), "t.gz").value();
  EXPECT_GT(half.spans.size(), 5000u);
  EXPECT_TRUE(half.truncated);
  deflateEnd(&z);
}

TEST(TraceImport, PerfScriptGivesStacksAndStates) {
  const Trace t = import_perf(
                      "worker 10/11 [001]  5.000100:     250000 cycles:u: \n"
                      "\t7f00 inner+0x10 (/lib/x.so)\n"
                      "\t7f01 std::map<int, int>::find(int const&)+0x3 (/bin/y)\n"
                      "\n"
                      "swapper     0 [000]  5.000000: sched:sched_switch: prev_comm=swapper prev_pid=0 prev_prio=120 "
                      "prev_state=R ==> "
                      "next_comm=worker next_pid=11 next_prio=120\n"
                      "worker    11 [000]  5.000200: sched:sched_switch: prev_comm=worker prev_pid=11 prev_prio=120 "
                      "prev_state=S ==> "
                      "next_comm=swapper next_pid=0 next_prio=120\n"
                      "other     12 [001]  5.000500: sched:sched_wakeup: comm=worker pid=11 prio=120 target_cpu=000\n"
                      "swapper    0 [000]  5.000600: sched:sched_switch: prev_comm=swapper prev_pid=0 prev_prio=120 "
                      "prev_state=R ==> "
                      "next_comm=worker next_pid=11 next_prio=120\n",
                      "t.txt")
                      .value();
  ASSERT_EQ(t.samples.size(), 1u);
  EXPECT_EQ(t.samples[0].time, 5000100000);
  EXPECT_EQ(t.samples[0].weight, 250000);
  EXPECT_EQ(t.text(t.samples[0].stack), "std::map<int, int>::find(int const&);inner");
  ASSERT_EQ(t.thread_states.size(), 3u);
  EXPECT_EQ(t.thread_states[0].kind, ThreadStateKind::kRunning);
  EXPECT_EQ(t.thread_states[0].end - t.thread_states[0].begin, 200000);
  EXPECT_EQ(t.thread_states[1].kind, ThreadStateKind::kBlocked);
  EXPECT_EQ(t.thread_states[1].end - t.thread_states[1].begin, 300000);
  EXPECT_EQ(t.thread_states[2].kind, ThreadStateKind::kRunnable);
}

TEST(TraceImport, CollapsedStacks) {
  const Trace t = import_trace_bytes("main;run;decode 120\nmain;idle loop 30\n", "stacks").value();
  EXPECT_EQ(t.source, "collapsed");
  ASSERT_EQ(t.samples.size(), 2u);
  EXPECT_EQ(t.samples[1].weight, 30);
  const TraceSummary s = summarise(t);
  EXPECT_EQ(s.samples.at(0).name, "decode");
}

TEST(TraceImport, WhatIsNoTraceIsRefusedByName) {
  const std::string no_database = std::string("SQLite format 3\0", 16) + "and nothing that SQLite wrote";
  for (const std::string& bytes : {std::string(), std::string("hello"), std::string("{}"), std::string("[]"),
                                   std::string("{\"traceEvents\":[]}"), no_database, std::string("\x1f\x8b broken")}) {
    const auto t = import_trace_bytes(bytes, "some/file");
    ASSERT_FALSE(t.is_ok()) << bytes;
    EXPECT_NE(t.status().message().find("some/file"), std::string::npos) << t.status().message();
  }
}

// Work of two lanes that take turns because a thread holds a lock across its wait.
std::string turns(bool with_lock) {
  std::string events;
  const auto add = [&](const std::string& e) { events += (events.empty() ? "" : ",") + e; };
  for (int i = 0; i < 10; ++i) {
    const int t = i * 100;
    add(fmt::format(R"({{"ph":"b","cat":"link","name":"transfer","id":"t{}","pid":1,"tid":2,"ts":{}}})", i, t + 52));
    add(fmt::format(R"({{"ph":"e","cat":"link","name":"transfer","id":"t{}","pid":1,"tid":2,"ts":{}}})", i, t + 98));
    add(fmt::format(R"({{"ph":"b","cat":"device","name":"experts","id":"d{}","pid":1,"tid":1,"ts":{}}})", i, t + 2));
    add(fmt::format(R"({{"ph":"e","cat":"device","name":"experts","id":"d{}","pid":1,"tid":1,"ts":{}}})", i, t + 48));
    add(fmt::format(R"({{"ph":"X","cat":"op","name":"dispatch","pid":1,"tid":1,"ts":{},"dur":50}})", t));
    add(fmt::format(R"({{"ph":"X","cat":"wait","name":"device wait","pid":1,"tid":1,"ts":{},"dur":46}})", t + 2));
    if (!with_lock) continue;
    add(fmt::format(
        R"({{"ph":"b","cat":"lock_hold","name":"queue","id":"h{}","pid":1,"tid":1,"ts":{},"args":{{"tid":1}}}})", i,
        t + 1));
    add(fmt::format(R"({{"ph":"e","cat":"lock_hold","name":"queue","id":"h{}","pid":1,"tid":1,"ts":{}}})", i, t + 49));
    add(fmt::format(
        R"({{"ph":"X","cat":"lock_wait","name":"queue","pid":1,"tid":2,"ts":{},"dur":39,"args":{{"holder":1}}}})",
        t + 10));
  }
  return events;
}

TEST(Overlap, TurnsAreFoundAndTheLockIsNamed) {
  const OverlapReport r = find_overlap(chrome(turns(true)), {}).value();
  ASSERT_EQ(r.never.size(), 1u);
  EXPECT_EQ(r.never[0].lock, "queue");
  EXPECT_EQ(r.never[0].holder, "1");
  EXPECT_EQ(r.never[0].holder_span, "dispatch");
  EXPECT_EQ(r.never[0].held_across, "device wait");
  EXPECT_EQ(r.never[0].waiter, "1 / 2");
  EXPECT_EQ(r.never[0].waited_ns, 390000);
  EXPECT_FALSE(r.findings.empty());
}

TEST(Overlap, WithoutLockProbesTheLockIsOnlySuspected) {
  const OverlapReport r = find_overlap(chrome(turns(false)), {}).value();
  ASSERT_EQ(r.never.size(), 1u);
  EXPECT_EQ(r.never[0].lock, "");
  EXPECT_NE(r.findings.at(0).find("no probe that names it"), std::string::npos);
}

TEST(Overlap, LanesThatDoOverlapAreNoFinding) {
  std::string events;
  for (int i = 0; i < 10; ++i)
    for (const char* lane : {"transfer", "experts"})
      for (const char* phase : {"b", "e"})
        events += fmt::format(R"({}{{"ph":"{}","cat":"{}","name":"{}","id":{},"pid":1,"tid":1,"ts":{}}})",
                              events.empty() ? "" : ",", phase, lane, lane, i,
                              i * 100 + (*phase == 'e' ? 50 : 0) + (*lane == 't' ? 20 : 0));
  const OverlapReport r = find_overlap(chrome(events), {.a = "transfer", .b = "experts"}).value();
  EXPECT_TRUE(r.never.empty());
  ASSERT_TRUE(r.asked);
  EXPECT_EQ(r.asked->both_ns, 300000);
  int64_t sum = 0;
  for (const auto& [name, ns] : r.shares) sum += ns;
  EXPECT_EQ(sum, r.window.length());
}

TEST(Overlap, TheCriticalPathRunsThroughTheHolderOfALock) {
  const CriticalPath path = critical_path(chrome(turns(true)), {0, 1000000});
  EXPECT_GT(path.ns, 400000);
}

TEST(Overlap, BadQuestionsAreAnswered) {
  const Trace t = chrome(turns(true));
  EXPECT_FALSE(find_overlap(t, {.a = "transfer"}).is_ok());
  EXPECT_FALSE(find_overlap(t, {.a = "transfer", .b = "nothing like it"}).is_ok());
  EXPECT_FALSE(find_overlap(t, {.within = "dispatch", .instance = 11}).is_ok());
  EXPECT_TRUE(find_overlap(t, {.within = "dispatch", .instance = 10}).is_ok());
}

TEST(TraceWriter, WhatItWritesIsReadBack) {
  const Trace t = chrome(turns(true) + R"(,
    {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"dispatch \"thread\""}},
    {"ph":"X","cat":"kernel","name":"gemm<\n>","pid":0,"tid":7,"ts":-3.25,"dur":2,"args":{"device":0,"stream":7,"correlation":9,"bytes":5}},
    {"ph":"s","name":"go","cat":"flow","id":1,"pid":1,"tid":1,"ts":1},
    {"ph":"f","name":"go","cat":"flow","id":1,"pid":1,"tid":2,"ts":5},
    {"ph":"C","name":"queue length","pid":1,"tid":1,"ts":5,"args":{"value":3}})");
  const Trace back = import_chrome(chrome_json(t), "again").value();
  EXPECT_TRUE(back.warnings.empty());
  EXPECT_EQ(to_text(summarise(back), 50), to_text(summarise(t), 50));
  EXPECT_EQ(to_text(find_overlap(back, {}).value()), to_text(find_overlap(t, {}).value()));
  EXPECT_EQ(back.flows.size(), 1u);
  EXPECT_EQ(back.counters.size(), 1u);
  EXPECT_EQ(back.device_ops.at(0).begin, -3250);
}

}  // namespace
}  // namespace lathe
