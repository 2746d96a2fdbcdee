#include <gtest/gtest.h>

#include <filesystem>

#include "feedback/importer.h"
#include "feedback/overlap.h"
#include "testing/golden.h"

// Traces that other people recorded, with answers that are known. They lie beside the repository, not in it.
namespace lathe {
namespace {

#define KNOWN_TRACE(var, file)                                                                \
  const std::string var##_path = testing::source_path("../shared/traces/" file);              \
  if (!std::filesystem::exists(var##_path)) GTEST_SKIP() << file << " isn't on this machine"; \
  const Trace var = import_trace(var##_path).value()

int64_t us(int64_t ns) { return (ns + 500) / 1000; }

int64_t total_of(const Trace& t, const std::string& part) {
  int64_t sum = 0;
  for (const Span& s : t.spans)
    if (t.text(s.name).find(part) != std::string::npos) sum += s.length();
  return sum;
}

std::vector<int64_t> steps_of(const Trace& t) {
  std::vector<int64_t> steps;
  for (const NameTime& s : summarise(t).steps) steps.push_back(us(s.total_ns));
  return steps;
}

TEST(KnownTraces, LoaderInTheMainProcess) {
  KNOWN_TRACE(t, "kineto_resnet50_workers0.json.gz");
  EXPECT_EQ(t.source, "pytorch");
  EXPECT_TRUE(t.warnings.empty()) << t.warnings.front();
  EXPECT_EQ(steps_of(t), (std::vector<int64_t>{176078, 173992, 176918, 181259, 176468, 164261}));
  EXPECT_EQ(us(total_of(t, "enumerate(DataLoader)")), 415791);
  const DeviceTime d = device_times(t).at(0);
  EXPECT_EQ(us(d.busy_ns), 603558);
  EXPECT_EQ(us(d.kernel_sum_ns), 591532);
  EXPECT_EQ(d.kernels, 8772);
}

TEST(KnownTraces, LoaderInFourWorkers) {
  KNOWN_TRACE(t, "kineto_resnet50_workers4.json.gz");
  std::vector<int64_t> steps = steps_of(t);
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0], 181565);
  int64_t sum = 0;
  for (int64_t s : steps) sum += s;
  EXPECT_EQ(sum, 838152);
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ((steps[2] + steps[3] + 1) / 2, 126548);
  EXPECT_EQ(us(total_of(t, "enumerate(DataLoader)")), 8522);
  const DeviceTime d = device_times(t).at(0);
  EXPECT_EQ(us(d.busy_ns), 614413);
  EXPECT_EQ(d.kernels, 8868);
}

TEST(KnownTraces, CriticalPathOfAForwardPass) {
  KNOWN_TRACE(t, "hta_simple_add.json.gz");
  const auto window = instance_of(t, "measure|forward]", 1);
  ASSERT_TRUE(window);
  const CriticalPath path = critical_path(t, *window);
  EXPECT_EQ(path.nodes, 315);
  EXPECT_EQ(path.edges, 314);
  EXPECT_EQ(path.events, 159);
  int64_t sum = 0;
  for (const PathStep& s : path.steps) sum += s.ns;
  EXPECT_EQ(sum, path.ns);
  EXPECT_LE(path.ns, window->length());
  // The first of two kernels was waited for by its launch, the next by the first.
  bool found = false;
  for (size_t i = 0; i + 1 < t.device_ops.size(); ++i)
    found = found || (path.launch_ns[i] == 27000 && path.gap_ns[i + 1] == 7000 &&
                      t.text(t.device_ops[i].name).find("fft") != std::string::npos);
  EXPECT_TRUE(found);
}

TEST(KnownTraces, KernelsOfAlexnet) {
  KNOWN_TRACE(t, "hta_alexnet.json.gz");
  const DeviceTime d = device_times(t).at(0);
  EXPECT_EQ(d.kernels, 79);
  EXPECT_EQ(us(d.kernel_sum_ns), 10692);
}

TEST(KnownTraces, KernelsOnOneStream) {
  KNOWN_TRACE(t, "hta_event_sync.json.gz");
  const DeviceTime d = device_times(t).at(0);
  int on_stream_7 = 0;
  for (const DeviceOp& op : t.device_ops)
    on_stream_7 += op.kind == DeviceOpKind::kKernel && t.tracks[op.track].stream == 7;
  EXPECT_EQ(on_stream_7, 4);
  EXPECT_EQ(us(d.busy_ns), 51);
}

TEST(KnownTraces, OperatorsOfOneIteration) {
  KNOWN_TRACE(t, "hta_compare_base.json.gz");
  EXPECT_EQ(t.facts.at("distributedInfo.rank"), "1");
  const auto window = instance_of(t, "ProfilerStep#1010", 1);
  ASSERT_TRUE(window);
  const TraceSummary s = summarise(part_of(t, *window));
  EXPECT_EQ(s.host_spans, 6);
  EXPECT_EQ(s.device_ops, 1);  // the one that was launched in it, though it ran later
}

TEST(KnownTraces, AmdNames) {
  KNOWN_TRACE(t, "hta_amd.json.gz");
  const DeviceTime d = device_times(t).at(0);
  EXPECT_EQ(d.kernels, 14);
  EXPECT_NEAR(static_cast<double>(d.busy_ns) / 1e3, 149.0, 0.05);
}

TEST(KnownTraces, HealthyProfileHasNoFinding) {
  KNOWN_TRACE(t, "nsys_healthy_1pct.sqlite");
  const OverlapReport r = find_overlap(t, {}).value();
  ASSERT_EQ(r.devices.size(), 1u);
  EXPECT_EQ(r.devices[0].kernels, 400);
  EXPECT_EQ(r.devices[0].longest_gap_ns, 10000);
  EXPECT_NEAR(100.0 * static_cast<double>(r.devices[0].idle_ns) / static_cast<double>(r.devices[0].extent_ns), 0.99,
              0.005);
  EXPECT_TRUE(r.findings.empty()) << r.findings.front();
}

TEST(KnownTraces, TwoDevices) {
  KNOWN_TRACE(t, "nsys_2gpu_before.sqlite");
  const auto devices = device_times(t);
  ASSERT_EQ(devices.size(), 2u);
  // The published figure adds four parts that were rounded to 0.01 ms each.
  EXPECT_NEAR(static_cast<double>(devices[0].extent_ns + devices[1].extent_ns) / 1e6, 598.52, 0.02);
  EXPECT_NEAR(static_cast<double>(devices[0].kernel_sum_ns + devices[1].kernel_sum_ns) / 1e6, 535.20, 0.005);
}

}  // namespace
}  // namespace lathe
