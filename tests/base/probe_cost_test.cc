#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/probe.h"

// A probe that is off costs at most three instructions, counted by callgrind: a loop with one probe a round against the
// same loop without. The test runs itself under valgrind; it skips aloud where there is none.
namespace lathe {
namespace {

constexpr int kRounds = 1000000;

// What a probe sees in the engine: a recorder that comes with the context, around work that might change the context.
struct Context {
  Recorder* probes = nullptr;
};
[[gnu::noipa]] int64_t work(int64_t x) { return x + 1; }

[[gnu::noinline]] int64_t plain(const Context&, int64_t x) {
  for (int i = 0; i < kRounds; ++i) x = work(x);
  return x;
}
[[gnu::noinline]] int64_t probed(const Context& context, int64_t x) {
  for (int i = 0; i < kRounds; ++i) {
    const ProbeSpan span(context.probes, "round", "variant", 1, {i, 2});
    x = work(x);
  }
  return x;
}

int64_t instructions(const char* function) {
  const std::string out = ::testing::TempDir() + "lathe_probe_cost_" + std::to_string(getpid());
  const std::string command = "valgrind --tool=callgrind --callgrind-out-file=" + out + " --toggle-collect='" +
                              function + "*' /proc/" + std::to_string(getpid()) +
                              "/exe --gtest_filter=ProbeCost.Loops >/dev/null 2>&1 && grep -E '^(summary|totals):' " +
                              out;
  std::FILE* pipe = popen(command.c_str(), "r");
  char line[128] = "";
  const bool read = pipe && std::fgets(line, sizeof line, pipe);
  if (pipe) pclose(pipe);
  std::remove(out.c_str());
  return read ? std::atoll(std::string(line).substr(std::string(line).find(':') + 1).c_str()) : -1;
}

TEST(ProbeCost, Loops) {
  const Context context;
  EXPECT_EQ(plain(context, 1), probed(context, 1));
}

TEST(ProbeCost, OffCostsAtMostThreeInstructions) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "counts of a build with sanitizers or without optimisation say nothing";
#endif
  if (std::system("command -v valgrind >/dev/null 2>&1") != 0) GTEST_SKIP() << "valgrind isn't installed";
  const int64_t without = instructions("lathe::(anonymous namespace)::plain"),
                with = instructions("lathe::(anonymous namespace)::probed");
  if (without < 0 || with < 0) GTEST_SKIP() << "valgrind can't run this binary here";
  ASSERT_GT(without, kRounds);  // the loop itself was seen
  // A span has two probes: where it begins and where it ends.
  const double cost = static_cast<double>(with - without) / (2.0 * kRounds);
  std::printf("a probe that is off: %.2f instructions\n", cost);
  EXPECT_LE(with - without, 3 * 2 * kRounds + 1000);  // a few around the loop, once
}

}  // namespace
}  // namespace lathe
