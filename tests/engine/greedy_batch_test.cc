// Batched greedy generation: the reference's own continuations, alone or together, plain or speculative, forked or not.
#include "engine/greedy_batch.h"

#include <gtest/gtest.h>

#include "testing/golden.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::ints;

struct Engine {
  glm5_next::Config config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Device> device;
  ThreadPool pool{2};
  std::unique_ptr<Executor> executor;

  Engine(const std::string& model, int slots, int pages, const char* device_name = "cpu")
      : device(make_device(device_name).value()) {
    config = glm5_next::Config::read(model).value();
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(model).value());
    executor = Executor::create(config, *checkpoint, *device, pool, nullptr,
                                {.dtype = DType::kF32,
                                 .replay_length = 16,
                                 .max_draft = 5,
                                 .slots = slots,
                                 .pages = pages,
                                 .partition = {},
                                 .choices = {}})
                   .value();
  }
};

class GreedyBatchGolden : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(GreedyBatchGolden, ContinuationsAreTheReferencesWithAndWithoutDrafts) {
  const auto [name, drafts] = GetParam();
  LATHE_GOLDEN(golden, std::string("golden/") + name + "_greedy.safetensors");
  Engine e(fixture(std::string("models/") + name), 3, 30);  // fewer slots than prompts: some wait
  std::vector<GreedyJob> jobs;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; golden.tensors().contains(fmt::format("prompt.{}", i)); ++i) {
    expected.push_back(ints(golden, fmt::format("tokens.{}", i)));
    jobs.push_back({.beginning = ints(golden, fmt::format("prompt.{}", i)),
                    .pictures = nullptr,
                    .ends = {{}},
                    .max_tokens = static_cast<int>(expected.back().size())});
  }
  for (int step_rows : {2048, 40}) {
    const auto answers = generate_greedy(
        *e.executor, jobs,
        {.drafts = drafts, .step_rows = step_rows, .stop_tokens = {}, .progress = {}, .observer = nullptr});
    ASSERT_TRUE(answers.is_ok()) << answers.status().message();
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(answers.value()[i][0].tokens, expected[i])
          << name << " prompt " << i << " drafts " << drafts << " rows a step " << step_rows;
      EXPECT_FALSE(answers.value()[i][0].stopped);
    }
    EXPECT_EQ(e.executor->memory().free_slots(), 3);
    EXPECT_EQ(e.executor->memory().free_pages(), 30);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GreedyBatchGolden,
                         ::testing::Values(std::tuple{"tiny", 0}, std::tuple{"tiny", 1}, std::tuple{"tiny", 3},
                                           std::tuple{"tiny", 5}, std::tuple{"tiny_shared", 0},
                                           std::tuple{"tiny_bf16", 0}));

TEST(GreedyBatch, EndsOfOneBeginningAnswerAsIfEachWereWhole) {
  const std::string model = fixture("models/tiny");
  if (model.empty()) GTEST_SKIP() << "models/tiny is in neither tests/data nor the reference set";
  for (const char* device : {"cpu", "sim"})
    for (int drafts : {0, 3}) {
      Engine e(model, 8, 40, device);
      std::vector<int32_t> beginning(67);
      for (size_t i = 0; i < beginning.size(); ++i) beginning[i] = static_cast<int32_t>(i * 37 % 459);
      const std::vector<std::vector<int32_t>> ends = {{1, 2, 3}, {9}, {7, 7, 7, 7, 7, 7}};
      std::vector<GreedyJob> whole;
      for (const auto& end : ends) {
        std::vector<int32_t> prompt = beginning;
        prompt.insert(prompt.end(), end.begin(), end.end());
        whole.push_back({.beginning = prompt, .pictures = nullptr, .ends = {{}}, .max_tokens = 12});
      }
      const GreedyOptions options{
          .drafts = drafts, .step_rows = 50, .stop_tokens = {}, .progress = {}, .observer = nullptr};
      const auto apart = generate_greedy(*e.executor, whole, options);
      const auto forked = generate_greedy(
          *e.executor, {{.beginning = beginning, .pictures = nullptr, .ends = ends, .max_tokens = 12}}, options);
      ASSERT_TRUE(apart.is_ok() && forked.is_ok()) << forked.status().message();
      for (size_t i = 0; i < ends.size(); ++i)
        EXPECT_EQ(forked.value()[0][i].tokens, apart.value()[i][0].tokens)
            << device << " end " << i << " drafts " << drafts;
    }
}

TEST(GreedyBatch, StopsAtAStopTokenAndSaysSo) {
  LATHE_GOLDEN(golden, "golden/tiny_greedy.safetensors");
  const std::vector<int32_t> expected = ints(golden, "tokens.1");
  Engine e(fixture("models/tiny"), 2, 10);
  const int stop = expected[7];
  const auto answers = generate_greedy(
      *e.executor, {{.beginning = ints(golden, "prompt.1"), .pictures = nullptr, .ends = {{}}, .max_tokens = 64}},
      {.drafts = 3, .step_rows = 512, .stop_tokens = {stop}, .progress = {}, .observer = nullptr});
  ASSERT_TRUE(answers.is_ok());
  const GreedyAnswer& a = answers.value()[0][0];
  EXPECT_TRUE(a.stopped);
  EXPECT_EQ(a.tokens, std::vector<int32_t>(expected.begin(), std::find(expected.begin(), expected.end(), stop)));
}

}  // namespace
}  // namespace lathe
