// Sequence memory under a real model: forks, rollbacks and folds change no bit, and every kind of memory matters: a
// path whose state is dropped must fail.
#include <gtest/gtest.h>

#include <set>

#include "engine/executor.h"
#include "engine/run_settings.h"
#include "testing/golden.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::rms_ratio;

constexpr int kReplay = 16;

class MemoryOfTiny : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string model = fixture("models/tiny");
    if (model.empty()) GTEST_SKIP() << "models/tiny is in neither tests/data nor the reference set";
    device_ = make_device(GetParam()).value();
    config_ = glm5_next::Config::read(model).value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(model).value());
    ExecutorOptions options{.dtype = DType::kF32, .replay_length = kReplay, .max_draft = 4, .slots = 4, .pages = 24};
    executor_ = Executor::create(config_, *checkpoint_, *device_, pool_, nullptr, options).value();
  }

  std::vector<int32_t> ids(int count, uint32_t seed) const {
    std::vector<int32_t> out(count);
    for (int32_t& id : out) id = static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 9) % 512;
    return out;
  }
  // Feeds tokens to a sequence; logits of all of them.
  std::vector<float> feed(SequenceId id, const std::vector<int32_t>& tokens, bool in_ring = false) {
    auto out =
        executor_->run({{.sequence = id, .tokens = tokens, .features = {}, .in_ring = in_ring, .logits_of_last = -1}});
    EXPECT_TRUE(out.is_ok()) << out.status().message();
    std::vector<float> logits;
    EXPECT_TRUE(rows_to_host(*device_, out->logits, logits).is_ok());
    return logits;
  }
  SequenceMemory& memory() { return executor_->memory(); }

  std::unique_ptr<Device> device_;
  ThreadPool pool_{1};
  glm5_next::Config config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Executor> executor_;
};

TEST_P(MemoryOfTiny, AForkGoesOnLikeItsOriginalAndLeavesItAlone) {
  // At a pool's and a page's border and inside; the twin's other tokens must not show in the original.
  for (int length : {3, 4, 63, 64, 66}) {
    const std::vector<int32_t> prompt = ids(length, 1), next = ids(5, 2), other = ids(70, 3);
    const SequenceId lone = memory().open().value();
    feed(lone, prompt);
    const std::vector<float> expected = feed(lone, next);
    memory().close(lone);

    const SequenceId original = memory().open().value();
    feed(original, prompt);
    const SequenceId twin = memory().fork(original).value();
    feed(twin, other);
    EXPECT_EQ(feed(original, next), expected) << length;
    const SequenceId second = memory().fork(twin).value();
    EXPECT_EQ(feed(twin, next), feed(second, next)) << length;
    for (SequenceId id : {original, twin, second}) memory().close(id);
  }
  EXPECT_EQ(memory().free_slots(), 4);
  EXPECT_EQ(memory().free_pages(), 24);
}

TEST_P(MemoryOfTiny, RejectedDraftsLeaveNoTrace) {
  // Verification of 1 + 3 drafts by ring, of which `kept` count; then plain text goes on. Lengths at every offset of a
  // pool.
  for (int length : {5, 6, 7, 8, 61})
    for (int kept : {1, 2, 4}) {
      const std::vector<int32_t> prompt = ids(length, 4), drafts = ids(4, 5), next = ids(6, 6);
      const SequenceId plain = memory().open().value();
      feed(plain, prompt);
      const std::vector<float> wanted_drafts = feed(plain, {drafts.begin(), drafts.begin() + kept}, true);
      const std::vector<float> wanted = feed(plain, next, true);
      memory().close(plain);

      const SequenceId id = memory().open().value();
      feed(id, prompt);
      std::vector<float> rows = feed(id, drafts, true);
      ASSERT_TRUE(executor_->accept(id, 4, kept).is_ok());
      EXPECT_EQ(memory().position(id), length + kept);
      rows.resize(wanted_drafts.size());
      EXPECT_EQ(rows, wanted_drafts) << length << " kept " << kept;
      EXPECT_EQ(feed(id, next, true), wanted) << length << " kept " << kept;
      memory().close(id);
    }
}

TEST_P(MemoryOfTiny, AFoldedRingGoesOnLikeTheRecurrentForm) {
  const std::vector<int32_t> prompt = ids(20, 7), by_ring = ids(40, 8), next = ids(4, 9);
  const SequenceId plain = memory().open().value(), ring = memory().open().value();
  feed(plain, prompt), feed(ring, prompt);
  for (int32_t t : by_ring) {
    const std::vector<float> a = feed(plain, {t}), b = feed(ring, {t}, true);
    EXPECT_LE(rms_ratio(b, a), 1e-5);
  }
  const Status folded = executor_->fold({ring});
  ASSERT_TRUE(folded.is_ok()) << folded.message();
  EXPECT_TRUE(memory().ring_is_empty(ring));
  EXPECT_EQ(memory().state_position(ring), 60);
  EXPECT_LE(rms_ratio(feed(ring, next), feed(plain, next)), 1e-5);
}

TEST_P(MemoryOfTiny, RollbackBehindTheStateIsRefused) {
  const SequenceId id = memory().open().value();
  feed(id, ids(20, 1));
  EXPECT_EQ(memory().rollback(id, 19).code(), StatusCode::kInvalid);
  feed(id, ids(3, 2), true);
  EXPECT_TRUE(memory().rollback(id, 20).is_ok());
  EXPECT_EQ(memory().rollback(id, 19).code(), StatusCode::kInvalid);
}

TEST_P(MemoryOfTiny, FullPoolsAreSaidAndNothingIsLost) {
  std::vector<SequenceId> all;
  for (int i = 0; i < 4; ++i) all.push_back(memory().open().value());
  EXPECT_EQ(memory().open().status().code(), StatusCode::kExhausted);
  EXPECT_EQ(memory().reserve(all[0], 25 * 64).code(), StatusCode::kExhausted);
  EXPECT_EQ(memory().free_pages(), 24);
  EXPECT_TRUE(memory().reserve(all[0], 24 * 64).is_ok());
}

TEST_P(MemoryOfTiny, EveryKindOfMemoryMatters) {
  // Two tokens by ring, so that it holds something; then position 51 completes the pool whose first rows are held open.
  std::set<SegmentKind> kinds;
  const std::vector<int32_t> prompt = ids(49, 10), ring = ids(2, 11), next = ids(6, 12);
  auto prepared = [&] {
    const SequenceId id = memory().open().value();
    feed(id, prompt);
    feed(id, ring, true);
    return id;
  };
  const SequenceId whole = prepared();
  for (const Segment& s : memory().segments(whole)) kinds.insert(s.kind);
  const std::vector<float> expected = feed(whole, next, true);
  memory().close(whole);
  for (SegmentKind kind : kinds) {
    if (kind == SegmentKind::kHiddenRow) continue;  // the MTP block's; the text tower never reads it
    const SequenceId id = prepared();
    // Only layers of the text tower: the MTP block's pages are its own.
    for (const Segment& s : memory().segments(id))
      if (s.kind == kind) device_->zero(s.address, s.bytes);
    EXPECT_GT(rms_ratio(feed(id, next, true), expected), 1e-3)
        << segment_kind_name(kind) << " was dropped, and nothing changed";
    memory().close(id);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MemoryOfTiny, ::testing::Values("cpu", "sim"));

}  // namespace
}  // namespace lathe
