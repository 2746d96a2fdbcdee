// The host tier takes all kinds or none: an image that lacks one, or was damaged, is refused before a byte is written.
#include "cache/host_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cache/pattern_model.h"

namespace lathe {
namespace {

using testing::kFrozenKinds;
using testing::PatternModel;
using testing::small_shape;
using testing::some_tokens;

class HostTierTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const SequenceId id = memory_->open().value();
    ASSERT_TRUE(model_.feed(id, tokens_).is_ok());
    block_.fill(memory_->freeze(id).value());
    block_.filled();
  }
  void TearDown() override {
    if (block_.is_ready()) memory_->close(block_.give_back());
  }
  void leave() { memory_->close(block_.give_back()); }

  std::unique_ptr<Device> device_ = make_device(GetParam()).value();
  std::unique_ptr<SequenceMemory> memory_ = SequenceMemory::create(*device_, small_shape(), 2, 10, 3).value();
  PatternModel model_{*device_, *memory_};
  HostTier tier_{*memory_, *device_};
  std::vector<int32_t> tokens_ = some_tokens(21, 1);
  FrozenBlock block_;
};

// A part without its pieces of one kind, as an export that forgot them would have made it.
std::shared_ptr<const HostPart> without(const HostPart& part, SegmentKind kind) {
  auto left = std::make_shared<HostPart>();
  const char* from = part.bytes.data();
  for (const HostPart::Piece& p : part.pieces) {
    if (p.kind != kind) {
      left->pieces.push_back(p);
      left->bytes.insert(left->bytes.end(), from, from + p.bytes);
    }
    from += p.bytes;
  }
  left->checksum = left->compute_checksum();
  return left;
}

TEST_P(HostTierTest, AnImageHoldsEveryByteOfEveryKind) {
  const HostImage image = tier_.save(block_.read()).value();
  std::set<SegmentKind> kinds;
  auto count = [&](const HostPart& part) {
    for (const HostPart::Piece& p : part.pieces) kinds.insert(p.kind);
    return static_cast<int64_t>(part.bytes.size());
  };
  EXPECT_EQ(count(*image.slot), SequenceMemory::checkpoint_bytes(small_shape()));
  ASSERT_EQ(image.pages.size(), 3u);
  for (const auto& page : image.pages) EXPECT_EQ(count(*page), SequenceMemory::page_bytes(small_shape()));
  EXPECT_EQ(kinds, std::set<SegmentKind>(std::begin(kFrozenKinds), std::end(kFrozenKinds)));
}

TEST_P(HostTierTest, AKindThatExportForgotIsRefused) {
  const HostImage image = tier_.save(block_.read()).value();
  leave();
  for (SegmentKind kind : kFrozenKinds) {
    HostImage less = image;
    less.slot = without(*image.slot, kind);
    for (auto& page : less.pages) page = without(*page, kind);
    FrozenBlock block;
    EXPECT_EQ(tier_.load(less, block).code(), StatusCode::kCorrupt) << segment_kind_name(kind);
    EXPECT_EQ(block.state(), FrozenBlock::State::kEmpty);
    EXPECT_EQ(memory_->free_pages(), 10);
    EXPECT_EQ(memory_->free_checkpoints(), 3);
  }
  EXPECT_TRUE(tier_.load(image, block_).is_ok());
  EXPECT_EQ(model_.difference(block_.read().sequence(), tokens_), "");
}

TEST_P(HostTierTest, ADamagedByteIsRefused) {
  const HostImage image = tier_.save(block_.read()).value();
  leave();
  for (int part = -1; part < 3; ++part)
    for (int place : {0, 1, 2}) {
      const std::shared_ptr<const HostPart>& whole = part < 0 ? image.slot : image.pages[part];
      auto damaged = std::make_shared<HostPart>(*whole);
      damaged->bytes[place == 0 ? 0 : place == 1 ? damaged->bytes.size() / 2 : damaged->bytes.size() - 1] ^= 1;
      HostImage bad = image;
      (part < 0 ? bad.slot : bad.pages[part]) = damaged;
      FrozenBlock block;
      EXPECT_EQ(tier_.load(bad, block).code(), StatusCode::kCorrupt) << part;
    }
  // Two layers' pieces of one kind and size, exchanged: the checksum knows.
  auto swapped = std::make_shared<HostPart>(*image.slot);
  ASSERT_EQ(swapped->pieces[0].kind, swapped->pieces[1].kind);
  std::swap_ranges(swapped->bytes.begin(), swapped->bytes.begin() + swapped->pieces[0].bytes,
                   swapped->bytes.begin() + swapped->pieces[0].bytes);
  HostImage bad = image;
  bad.slot = swapped;
  FrozenBlock block;
  EXPECT_EQ(tier_.load(bad, block).code(), StatusCode::kCorrupt);
  EXPECT_EQ(memory_->free_pages(), 10);
}

TEST_P(HostTierTest, WithoutRoomNothingIsLoaded) {
  const HostImage image = tier_.save(block_.read()).value();
  leave();
  const SequenceId running = memory_->open().value();
  ASSERT_TRUE(memory_->reserve(running, 64).is_ok());  // 8 of 10 pages, 3 are wanted
  EXPECT_EQ(tier_.load(image, block_).code(), StatusCode::kExhausted);
  EXPECT_EQ(memory_->free_pages(), 2);
  EXPECT_EQ(memory_->free_checkpoints(), 3);
  memory_->close(running);
  EXPECT_TRUE(tier_.load(image, block_).is_ok());
  EXPECT_EQ(model_.difference(block_.read().sequence(), tokens_), "");
}

TEST(FrozenBlockDeath, WrongStepsStopTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        FrozenBlock b;
        (void)b.read();
      },
      "kReady");  // empty
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        (void)b.read();
      },
      "kReady");  // a transfer may write it
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        b.fill(2);
      },
      "kEmpty");  // used twice
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        b.give_back();
      },
      "kReady");  // given back half written
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.filled();
      },
      "kFilling");
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        b.filled();
        b.filled();
      },
      "kFilling");
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        b.filled();
        b.abandon();
      },
      "kFilling");
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
        b.filled();
        auto r = b.read();
        b.give_back();
      },
      "readers_ == 0");
  EXPECT_DEATH(
      {
        FrozenBlock b;
        b.fill(1);
      },
      "kEmpty");  // forgotten
}

TEST(FrozenBlock, ReadersAreCounted) {
  FrozenBlock b;
  b.fill(4), b.filled();
  {
    ReadablePages one = b.read();
    ReadablePages two = b.read(), three = std::move(one);
    EXPECT_EQ(b.readers(), 2);
    EXPECT_EQ(three.sequence(), 4);
  }
  EXPECT_EQ(b.readers(), 0);
  EXPECT_EQ(b.give_back(), 4);
}

INSTANTIATE_TEST_SUITE_P(Devices, HostTierTest, ::testing::Values("cpu", "sim"));

}  // namespace
}  // namespace lathe
