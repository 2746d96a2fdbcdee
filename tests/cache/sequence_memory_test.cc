// Frozen sequences: which slots and pages they hold, and that nobody writes them.
#include "cache/sequence_memory.h"

#include <gtest/gtest.h>

#include "cache/pattern_model.h"

namespace lathe {
namespace {

using testing::first;
using testing::PatternModel;
using testing::small_shape;
using testing::some_tokens;

struct Rig {
  std::unique_ptr<Device> device = make_device("sim").value();
  std::unique_ptr<SequenceMemory> memory = SequenceMemory::create(*device, small_shape(), 2, 12, 2).value();
  PatternModel model{*device, *memory};
  std::vector<int32_t> tokens = some_tokens(40, 1);

  SequenceId fed(int count) {
    const SequenceId id = memory->open().value();
    EXPECT_TRUE(model.feed(id, first(tokens, count)).is_ok());
    return id;
  }
};

TEST(FrozenSequence, HasNoRingAndEveryOtherByte) {
  Rig rig;
  const SequenceId id = rig.fed(20), frozen = rig.memory->freeze_copy(id).value();
  auto bytes = [&](SequenceId s) {
    int64_t sum = 0;
    for (const Segment& segment : rig.memory->segments(s)) sum += segment.bytes;
    return sum;
  };
  const int64_t pages = 3 * SequenceMemory::page_bytes(small_shape());
  EXPECT_EQ(bytes(frozen), pages + SequenceMemory::checkpoint_bytes(small_shape()));
  EXPECT_EQ(bytes(id), pages + SequenceMemory::slot_bytes(small_shape()));
  EXPECT_GT(SequenceMemory::slot_bytes(small_shape()), SequenceMemory::checkpoint_bytes(small_shape()));
}

TEST(FrozenSequence, TakesOverPagesAndGivesSlotAndSparePagesBack) {
  Rig rig;
  const SequenceId id = rig.fed(20);
  ASSERT_TRUE(rig.memory->reserve(id, 40).is_ok());
  const std::vector<int32_t> pages = first(rig.memory->pages(id), 3);
  const SequenceId frozen = rig.memory->freeze(id).value();
  EXPECT_EQ(rig.memory->pages(frozen), pages);
  EXPECT_EQ(rig.memory->free_pages(), 9);
  EXPECT_EQ(rig.memory->free_slots(), 2);
  EXPECT_EQ(rig.memory->free_checkpoints(), 1);
  EXPECT_EQ(rig.model.difference(frozen, first(rig.tokens, 20)), "");
}

TEST(FrozenSequence, AFullPoolIsSaidAndTheSequenceLives) {
  Rig rig;
  const SequenceId id = rig.fed(20);
  ASSERT_TRUE(rig.memory->freeze_copy(id).is_ok());
  ASSERT_TRUE(rig.memory->freeze_copy(id).is_ok());
  EXPECT_EQ(rig.memory->freeze(id).status().code(), StatusCode::kExhausted);
  EXPECT_EQ(rig.model.difference(id, first(rig.tokens, 20)), "");
}

TEST(FrozenSequence, ItsForkWaitsForTheTokenAfterTheLast) {
  Rig rig;
  const SequenceId id = rig.fed(20);
  rig.memory->set_mtp_rows(id, 20);  // while it ran, the token after the last was known
  const SequenceId frozen = rig.memory->freeze(id).value();
  EXPECT_EQ(rig.memory->mtp_rows(rig.memory->fork(frozen).value()), 19);
}

TEST(FrozenSequence, NamesOfPagesLastAsLongAsTheirBytes) {
  Rig rig;
  const SequenceId id = rig.fed(20);
  for (int32_t page : rig.memory->pages(id)) EXPECT_EQ(rig.memory->page_content(page), 0);
  const SequenceId frozen = rig.memory->freeze_copy(id).value();
  const std::vector<int32_t> pages = rig.memory->pages(frozen);
  const int64_t name = rig.memory->page_content(pages[2]);
  EXPECT_NE(name, 0);
  EXPECT_TRUE(rig.memory->holds(name));
  // The running one writes its own copy; the frozen one's keeps its name.
  ASSERT_TRUE(rig.model.feed(id, first(rig.tokens, 22)).is_ok());
  EXPECT_NE(rig.memory->pages(id)[2], pages[2]);
  EXPECT_EQ(rig.memory->page_content(rig.memory->pages(id)[2]), 0);
  EXPECT_EQ(rig.memory->page_content(pages[2]), name);
  rig.memory->close(frozen);
  EXPECT_FALSE(rig.memory->holds(name));
  // A sole user writes in place, and the page has no name from then on.
  const SequenceId second = rig.memory->freeze_copy(id).value();
  const int32_t page = rig.memory->pages(id)[2];
  rig.memory->close(second);
  EXPECT_NE(rig.memory->page_content(page), 0);
  ASSERT_TRUE(rig.model.feed(id, first(rig.tokens, 23)).is_ok());
  EXPECT_EQ(rig.memory->pages(id)[2], page);
  EXPECT_EQ(rig.memory->page_content(page), 0);
}

TEST(FrozenSequenceDeath, NobodyWritesOrMovesIt) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto frozen = [](Rig& rig) { return rig.memory->freeze(rig.fed(20)).value(); };
  EXPECT_DEATH(
      {
        Rig rig;
        (void)rig.memory->reserve(frozen(rig), 30);
      },
      "is_frozen");
  EXPECT_DEATH(
      {
        Rig rig;
        rig.memory->advance(frozen(rig), 1);
      },
      "is_frozen");
  EXPECT_DEATH(
      {
        Rig rig;
        (void)rig.memory->freeze_copy(frozen(rig));
      },
      "is_frozen");
}

}  // namespace
}  // namespace lathe
