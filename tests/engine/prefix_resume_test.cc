// The prefix cache under a real model: what goes on from a hit gives the logits and drafts of a cold run. In strict
// variants bit for bit, at every offset of page and pool, on the device and after a trip through the host tier.
#include <gtest/gtest.h>

#include "cache/prefix_cache.h"
#include "engine/mtp_drafter.h"
#include "engine/run_settings.h"
#include "testing/golden.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::rms_ratio;

using Tokens = std::vector<int32_t>;

class PrefixResume : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void start(int replay_length, const std::vector<std::string>& variants) {
    const std::string model = fixture("models/tiny");
    if (model.empty()) GTEST_SKIP() << "models/tiny is in neither tests/data nor the reference set";
    device_ = make_device(std::get<0>(GetParam())).value();
    config_ = glm5_next::Config::read(model).value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(model).value());
    ExecutorOptions options{.dtype = DType::kF32,
                            .replay_length = replay_length,
                            .max_draft = 3,
                            .slots = 3,
                            .pages = 20,
                            .checkpoints = 4};
    for (const std::string& v : variants) ASSERT_TRUE(options.choices.add(v).is_ok());
    executor_ = Executor::create(config_, *checkpoint_, *device_, pool_, nullptr, options).value();
    cache_ = PrefixCache::create(executor_->memory(), *device_,
                                 {.least = 1, .host_bytes = by_host() ? int64_t{1} << 30 : 0, .drafts = true})
                 .value();
    drafter_ = std::make_unique<MtpDrafter>(*executor_);
  }
  void start_strict() { start(0, {"kda_prefill=sequential", "sparse_mla=absorbed"}); }
  bool by_host() const { return std::get<1>(GetParam()); }
  SequenceMemory& memory() { return executor_->memory(); }

  Tokens ids(int count, uint32_t seed) const {
    Tokens out(count);
    for (int32_t& id : out) id = static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 9) % 459;
    return out;
  }
  // Feeds tokens and lets the MTP block follow; logits of all of them. `next`: the token after them, or -1: not known
  // yet; with it `drafts_` are made.
  std::vector<float> feed(SequenceId id, const Tokens& tokens, int32_t next = -1) {
    const int before = memory().position(id);
    auto out = executor_->run({{.sequence = id, .tokens = tokens, .features = {}, .logits_of_last = -1}});
    EXPECT_TRUE(out.is_ok()) << out.status().message();
    std::vector<float> logits;
    EXPECT_TRUE(rows_to_host(*device_, out->logits, logits).is_ok());
    std::vector<DraftRequest> requests = {
        {.sequence = id, .before = before, .tokens = tokens, .wanted = 0, .drafts = {}}};
    if (next >= 0) requests[0].tokens.push_back(next), requests[0].wanted = 3;
    const Status drafted = drafter_->draft(requests);
    EXPECT_TRUE(drafted.is_ok()) << drafted.message();
    drafts_ = requests[0].drafts;
    return logits;
  }
  SequenceId resume(const Tokens& tokens, int expected) {
    EXPECT_TRUE(!by_host() || cache_->make_room(0, memory().pages()));
    const PrefixCache::Hit hit = cache_->find(cache_->keys(tokens), static_cast<int>(tokens.size()) - 1);
    EXPECT_EQ(hit.position, expected);
    EXPECT_EQ(hit.on_host, by_host() && expected > 0);
    auto id = cache_->resume(hit);
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    EXPECT_EQ(memory().position(*id), expected);
    return *id;
  }
  // Rows that the MTP block's caches hold for good, as bytes.
  std::vector<char> mtp_latents(SequenceId id) {
    const Pool pool = memory().latent_pages(memory().shape().sparse_layers() - 1);
    const int rows = memory().mtp_rows(id), width = memory().shape().latent * 4, page = memory().shape().page_tokens;
    std::vector<char> bytes(static_cast<size_t>(rows) * width);
    for (int r = 0; r < rows; ++r)
      EXPECT_TRUE(device_
                      ->to_host(bytes.data() + static_cast<size_t>(r) * width,
                                static_cast<char*>(pool.at(memory().pages(id)[r / page])) + r % page * width, width)
                      .is_ok());
    return bytes;
  }

  std::unique_ptr<Device> device_;
  ThreadPool pool_{1};
  glm5_next::Config config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<MtpDrafter> drafter_;
  Tokens drafts_;
};

Tokens part(const Tokens& tokens, int begin, int end) { return {tokens.begin() + begin, tokens.begin() + end}; }

TEST_P(PrefixResume, WarmAndColdAreEqualBitForBitInStrict) {
  start_strict();
  if (!executor_) return;
  if (std::string(std::get<0>(GetParam())) == "sim")
    GTEST_SKIP() << "sim runs oracles, which round a state to f32 only where a run ends: a cut shows in their bits";
  const int length = 75;
  const Tokens tokens = ids(length, 1);
  const int32_t next = 7;
  const SequenceId cold = memory().open().value();
  const std::vector<float> expected = feed(cold, tokens, next);
  const Tokens expected_drafts = drafts_;
  const std::vector<char> expected_mtp = mtp_latents(cold);
  memory().close(cold);
  ASSERT_EQ(expected_drafts.size(), 3u);
  for (int position = 1; position < length; ++position) {
    // Half of the nodes are taken over, half are copies of a sequence that goes on with other tokens, into the same
    // page.
    SequenceId id = memory().open().value();
    feed(id, part(tokens, 0, position));
    cache_->keep(id, cache_->keys(tokens), position % 2 == 0);
    if (position % 2 == 1) {
      feed(id, ids(9, 2));
      memory().close(id);
    }
    id = resume(tokens, position);
    const std::vector<float> warm = feed(id, part(tokens, position, length), next);
    const auto rest = static_cast<std::ptrdiff_t>(warm.size());
    ASSERT_TRUE(warm == std::vector<float>(expected.end() - rest, expected.end())) << position;
    ASSERT_EQ(drafts_, expected_drafts) << position;
    ASSERT_EQ(mtp_latents(id), expected_mtp) << position;
    memory().close(id);
    cache_->clear();
  }
  EXPECT_EQ(memory().free_pages(), 20);
  EXPECT_EQ(cache_->stats().load_failures, 0u);
}

// The same against a sequence that was cut at the same place and never left: no bit is lost on the way, on any device
// and by any variants.
TEST_P(PrefixResume, WhatIsResumedGoesOnLikeWhatWasNeverKept) {
  start(0, {});
  if (!executor_) return;
  const int length = 70;
  const Tokens tokens = ids(length, 5);
  for (int position : {1, 2, 3, 4, 5, 31, 62, 63, 64, 65, 66}) {
    const SequenceId original = memory().open().value();
    feed(original, part(tokens, 0, position));
    cache_->keep(original, cache_->keys(tokens), false);
    const std::vector<float> expected = feed(original, part(tokens, position, length), 7);
    const Tokens expected_drafts = drafts_;
    const std::vector<char> expected_mtp = mtp_latents(original);
    memory().close(original);
    const SequenceId id = resume(tokens, position);
    EXPECT_TRUE(feed(id, part(tokens, position, length), 7) == expected) << position;
    EXPECT_EQ(drafts_, expected_drafts) << position;
    EXPECT_EQ(mtp_latents(id), expected_mtp) << position;
    memory().close(id);
    cache_->clear();
  }
}

// What generation with drafts leaves behind: rings folded, some drafts rejected. The next turn goes on from there.
TEST_P(PrefixResume, TheNextTurnGoesOnFromASpeculativeOne) {
  start(16, {});
  if (!executor_) return;
  for (int length : {5, 30, 61, 62, 63, 64}) {
    const Tokens prompt = ids(length, 3);
    SequenceId id = memory().open().value();
    feed(id, prompt, 11);
    Tokens held = prompt;
    int32_t next = 11;
    for (int step = 0; step < 6; ++step) {
      // Of 1 + 3 rows the first `kept` count, whatever the model thinks of them.
      Tokens rows = {next};
      rows.insert(rows.end(), drafts_.begin(), drafts_.end());
      ASSERT_EQ(rows.size(), 4u);
      const int kept = 1 + step % 4, before = memory().position(id);
      ASSERT_TRUE(memory().reserve(id, before + 8).is_ok());
      ASSERT_TRUE(
          executor_->run({{.sequence = id, .tokens = rows, .features = {}, .in_ring = true, .logits_of_last = -1}})
              .is_ok());
      ASSERT_TRUE(executor_->accept(id, 4, kept).is_ok());
      held.insert(held.end(), rows.begin(), rows.begin() + kept);
      next = 20 + step;
      std::vector<DraftRequest> requests = {
          {.sequence = id, .before = before, .tokens = part(rows, 0, kept), .wanted = 3, .drafts = {}}};
      requests[0].tokens.push_back(next);
      ASSERT_TRUE(drafter_->draft(requests).is_ok());
      drafts_ = requests[0].drafts;
    }
    ASSERT_TRUE(executor_->fold({id}).is_ok());
    cache_->keep(id, cache_->keys(held), true);
    // The user's next turn doesn't begin with the token that was drafted from.
    Tokens turn = held;
    for (int32_t t : ids(12, 4)) turn.push_back(t);
    const SequenceId warm = resume(turn, static_cast<int>(held.size())), cold = memory().open().value();
    const std::vector<float> warm_logits =
        feed(warm, part(turn, static_cast<int>(held.size()), static_cast<int>(turn.size())), 9);
    const Tokens warm_drafts = drafts_;
    std::vector<float> cold_logits = feed(cold, turn, 9);
    cold_logits.erase(cold_logits.begin(), cold_logits.end() - static_cast<std::ptrdiff_t>(warm_logits.size()));
    EXPECT_LE(rms_ratio(warm_logits, cold_logits), 1e-4) << length;
    EXPECT_EQ(warm_drafts, drafts_) << length;
    const std::vector<char> a = mtp_latents(warm), b = mtp_latents(cold);
    ASSERT_EQ(a.size(), b.size());
    auto values = [](const std::vector<char>& bytes) {
      std::vector<float> v(bytes.size() / 4);
      std::memcpy(v.data(), bytes.data(), bytes.size());
      return v;
    };
    EXPECT_LE(rms_ratio(values(a), values(b)), 1e-4) << length;
    memory().close(warm), memory().close(cold);
    cache_->clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PrefixResume, ::testing::Combine(::testing::Values("cpu", "sim"), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_by_host" : "");
                         });

}  // namespace
}  // namespace lathe
