#include "model/glm5_next/memory_plan.h"

#include <gtest/gtest.h>

#include "cache/sequence_memory.h"
#include "engine/executor.h"
#include "model/glm5_next/scratch_bound.h"
#include "model/glm5_next/synth.h"
#include "testing/sized_config.h"

// What is planned before a weight is read, against what passes really take.
namespace lathe::glm5_next {

namespace {

Config parsed(const nlohmann::json& json) { return Config::parse(json.dump(), "config.json").value(); }

struct Sized {
  Sized(int megabytes, bool w8a8)
      : config(parsed(testing::sized_config(megabytes, w8a8))),
        format(w8a8 ? WeightFormat::kRowInt8 : WeightFormat::kPlain),
        tensors(list_tensors(config, format)) {}
  Config config;
  WeightFormat format;
  std::vector<TensorInfo> tensors;
};

TEST(MemoryPlan, PassesStayBelowATenthOfTheWeights) {
  int64_t rows_before = 0;
  for (int megabytes : {60, 200, 600, 2000})
    for (bool w8a8 : {true, false}) {
      const Sized m(megabytes, w8a8);
      const PassLimits limits = pass_limits(m.config, m.tensors, DType::kBF16, {});
      const MemoryPlan plan = plan_memory(m.config, m.tensors, {.context = 4096, .threads = 2});
      SCOPED_TRACE(
          fmt::format("{} MB, w8a8 {}: {} rows, {} logit rows", megabytes, w8a8, limits.rows, limits.logit_rows));
      EXPECT_NEAR(static_cast<double>(plan.weights), megabytes * 1e6, megabytes * 0.2e6);
      EXPECT_EQ(plan.rows, limits.rows);
      EXPECT_LE(static_cast<double>(plan.activations + plan.scratch), 0.1 * static_cast<double>(plan.planned()));
      EXPECT_GE(limits.rows, 64);
      EXPECT_GE(limits.logit_rows, 1);
      if (!w8a8) {
        EXPECT_GE(limits.rows, rows_before);
        rows_before = limits.rows;
      }
    }
  EXPECT_GE(rows_before, 1024);  // of the largest: the plan isn't timid
}

TEST(MemoryPlan, ACutAsksForNoMoreThanTheWhole) {
  const Sized m(200, false);
  const PassLimits whole = pass_limits(m.config, m.tensors, DType::kBF16, {});
  const PassLimits cut = pass_limits(m.config, m.tensors, DType::kBF16, Partition::parse("ep=2").value());
  EXPECT_LE(cut.rows, whole.rows);
  EXPECT_LE(pass_limits(m.config, m.tensors, DType::kF32, {}).rows, whole.rows);
}

TEST(MemoryPlan, SlotsAndPagesAreThoseOfASequence) {
  const Config config = parsed(testing::small_config());
  ThreadPool pool(1);
  const std::unique_ptr<Device> device = make_cpu_device();
  const Checkpoint checkpoint = synthesise_in_memory(config, WeightFormat::kPlain, 1, pool).value();
  const MemoryRequest request{.context = 200, .batch = 1, .replay_length = 16, .max_draft = 3};
  const MemoryPlan plan = plan_memory(config, list_tensors(config, WeightFormat::kPlain), request);
  const auto executor =
      Executor::create(config, checkpoint, *device, pool, nullptr,
                       {.replay_length = 16, .max_draft = 3, .slots = 1, .pages = static_cast<int>(plan.page_count)})
          .value();
  SequenceMemory& memory = executor->memory();
  const SequenceId id = memory.open().value();
  ASSERT_TRUE(memory.reserve(id, 200).is_ok());
  int64_t bytes = 0;
  for (const Segment& s : memory.segments(id)) bytes += s.bytes;
  EXPECT_EQ(bytes, plan.slots + plan.pages);
}

// Runs prefill of many, few and single rows: no operator may have taken more scratch than the bound says, and the bound
// may not be far from it.
TEST(MemoryPlan, ScratchStaysBelowItsBound) {
  struct Shape {
    const char* name;
    WeightFormat format;
    DType dtype;
    int rows, threads, kda_dim, heads, hidden;
  };
  for (const Shape& s : {Shape{"plain", WeightFormat::kPlain, DType::kBF16, 300, 2, 32, 4, 128},
                         Shape{"f32", WeightFormat::kPlain, DType::kF32, 700, 1, 64, 2, 128},
                         Shape{"int8", WeightFormat::kRowInt8, DType::kBF16, 300, 3, 16, 20, 64},
                         Shape{"fp8", WeightFormat::kRowFp8, DType::kF32, 1, 2, 128, 4, 256}}) {
    nlohmann::json json = testing::small_config();
    json["text_config"]["linear_attn_config"]["head_dim"] = s.kda_dim;
    json["text_config"]["hidden_size"] = s.hidden;
    for (const char* field : {"num_attention_heads", "num_key_value_heads"}) json["text_config"][field] = s.heads;
    json["vision_config"]["out_hidden_size"] = s.hidden;
    const Config config = parsed(json);
    ThreadPool pool(s.threads);
    const std::unique_ptr<Device> device = make_cpu_device();
    const Checkpoint checkpoint = synthesise_in_memory(config, s.format, 1, pool).value();
    const auto executor =
        Executor::create(config, checkpoint, *device, pool, nullptr, {.dtype = s.dtype, .slots = 1, .pages = 16})
            .value();
    const SequenceId id = executor->memory().open().value();
    for (int rows : {s.rows, 1}) {
      const auto out = executor->run({{.sequence = id,
                                       .tokens = std::vector<int32_t>(rows, 7),
                                       .features = {},
                                       .in_ring = false,
                                       .logits_of_last = -1}});
      ASSERT_TRUE(out.is_ok()) << out.status().message();
    }
    const int64_t bound = scratch_bound(config.text, {.rows = s.rows,
                                                      .logit_rows = s.rows,
                                                      .context = s.rows + 1,
                                                      .dtype = s.dtype,
                                                      .w8a8 = s.format != WeightFormat::kPlain,
                                                      .threads = s.threads});
    const int64_t taken = executor->scratch_peak_bytes();
    EXPECT_LE(taken, bound) << s.name;
    EXPECT_GE(taken, (bound - (1 << 20)) / 8) << s.name << ": the bound says nothing";
  }
}

}  // namespace

}  // namespace lathe::glm5_next
