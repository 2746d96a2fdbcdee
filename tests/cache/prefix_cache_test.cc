// The prefix cache over a memory filled with patterns: whatever a hit gives back is, byte for byte and in every kind,
// what the beginning had; at every offset of page and pool, on the device and after the host tier.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cache/pattern_model.h"

namespace lathe {
namespace {

using testing::first;
using testing::kFrozenKinds;
using testing::PatternModel;
using testing::small_shape;
using testing::some_tokens;

constexpr int64_t kHuge = int64_t{1} << 40;

struct Rig {
  explicit Rig(const std::string& device_name, PrefixCacheOptions options, int slots = 3, int pages = 200,
               int checkpoints = 60)
      : device(make_device(device_name).value()),
        memory(SequenceMemory::create(*device, small_shape(), slots, pages, checkpoints).value()),
        model(*device, *memory),
        cache(PrefixCache::create(*memory, *device, options).value()) {}

  // A sequence that holds the tokens, from nothing.
  SequenceId fed(const std::vector<int32_t>& tokens) {
    const SequenceId id = memory->open().value();
    EXPECT_TRUE(model.feed(id, tokens).is_ok());
    return id;
  }
  // A past request: its last position was kept.
  void remember(const std::vector<int32_t>& tokens) { cache->keep(fed(tokens), cache->keys(tokens), true); }
  PrefixCache::Hit find(const std::vector<int32_t>& tokens) {
    return cache->find(cache->keys(tokens), static_cast<int>(tokens.size()));
  }
  // Everything on the device goes to the host.
  void press_out() {
    const int all = memory->pages();
    ASSERT_TRUE(cache->make_room(0, all));
    ASSERT_EQ(cache->stats().on_device + cache->stats().on_both, 0);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<SequenceMemory> memory;
  PatternModel model;
  std::unique_ptr<PrefixCache> cache;
};

class PrefixCacheTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PrefixCacheTest, AHitResumesEveryKindAtEveryOffset) {
  for (const bool by_host : {false, true})
    for (int length = 1; length <= 26; ++length) {
      Rig rig(GetParam(), {.interval = 1024, .least = 1, .host_bytes = by_host ? kHuge : 0, .drafts = true});
      const std::vector<int32_t> tokens = some_tokens(60, 5);
      rig.remember(first(tokens, length));
      EXPECT_EQ(rig.memory->free_slots(), 3);
      if (by_host) {
        rig.press_out();
        // What lies on the device is nobody's now: other sequences overwrite it.
        const SequenceId other = rig.fed(some_tokens(200 * 8, 77));
        for (SegmentKind kind : kFrozenKinds) rig.model.spoil(other, kind);
        rig.memory->close(other);
      }
      const PrefixCache::Hit hit = rig.find(tokens);
      ASSERT_EQ(hit.position, length);
      EXPECT_EQ(hit.on_host, by_host);
      const SequenceId id = rig.cache->resume(hit).value();
      EXPECT_EQ(rig.model.difference(id, first(tokens, length)), "") << length << (by_host ? " by host" : "");
      // It goes on, and the node stays as it was.
      ASSERT_TRUE(rig.model.feed(id, tokens).is_ok());
      EXPECT_EQ(rig.model.difference(id, tokens), "") << length;
      std::vector<int32_t> branch = first(tokens, length);
      branch.insert(branch.end(), {901, 902, 903, 904, 905});
      const SequenceId twin = rig.cache->resume(rig.find(branch)).value();
      EXPECT_EQ(rig.model.difference(twin, first(tokens, length)), "") << length;
      ASSERT_TRUE(rig.model.feed(twin, branch).is_ok());
      EXPECT_EQ(rig.model.difference(twin, branch), "") << length;
      EXPECT_EQ(rig.model.difference(id, tokens), "") << length;
      rig.memory->close(id), rig.memory->close(twin);
      rig.cache->clear();
      EXPECT_EQ(rig.memory->free_pages(), 200);
      EXPECT_EQ(rig.memory->free_checkpoints(), 60);
    }
}

// The comparison above must be able to fail: each kind, forgotten after a resume, is noticed.
TEST_P(PrefixCacheTest, AForgottenKindWouldBeNoticed) {
  for (SegmentKind kind : kFrozenKinds) {
    Rig rig(GetParam(), {.least = 1, .drafts = true});
    const std::vector<int32_t> tokens = some_tokens(22, 6);
    rig.remember(tokens);
    const SequenceId id = rig.cache->resume(rig.find(tokens)).value();
    ASSERT_TRUE(rig.memory->reserve_rows(id, 0, 22).is_ok());  // own pages
    rig.model.spoil(id, kind);
    EXPECT_NE(rig.model.difference(id, tokens).find(segment_kind_name(kind)), std::string::npos)
        << segment_kind_name(kind) << ": " << rig.model.difference(id, tokens);
    rig.memory->close(id);
  }
}

TEST_P(PrefixCacheTest, ACopyIsKeptWhileItsSequenceGoesOn) {
  for (int length = 1; length <= 20; ++length) {
    Rig rig(GetParam(), {.least = 1, .drafts = true});
    const std::vector<int32_t> tokens = some_tokens(40, 7);
    const SequenceId id = rig.fed(first(tokens, length));
    rig.cache->keep(id, rig.cache->keys(tokens), false);
    ASSERT_TRUE(rig.model.feed(id, tokens).is_ok());  // writes a page that the node has, too
    const SequenceId resumed = rig.cache->resume(rig.find(tokens)).value();
    EXPECT_EQ(rig.model.difference(resumed, first(tokens, length)), "") << length;
    EXPECT_EQ(rig.model.difference(id, tokens), "") << length;
    rig.memory->close(id), rig.memory->close(resumed);
  }
}

TEST_P(PrefixCacheTest, TheLongestBeginningWithinTheLimitIsFound) {
  Rig rig(GetParam(), {.least = 1});
  const std::vector<int32_t> tokens = some_tokens(50, 8);
  for (int length : {5, 8, 13, 16, 30}) rig.remember(first(tokens, length));
  const PrefixKeys keys = rig.cache->keys(tokens);
  std::map<int, int> expected = {{4, 0},   {5, 5},   {7, 5},   {8, 8},   {12, 8}, {13, 13},
                                 {15, 13}, {16, 16}, {29, 16}, {30, 30}, {50, 30}};
  for (const auto& [limit, position] : expected) EXPECT_EQ(rig.cache->find(keys, limit).position, position) << limit;
  std::vector<int32_t> other = tokens;
  other[14] ^= 1;
  EXPECT_EQ(rig.find(other).position, 13);
  EXPECT_EQ(rig.find(other).known, 8);
  EXPECT_EQ(rig.cache->find(rig.cache->keys(tokens, {}, "salt"), 50).position, 0);
  EXPECT_EQ(rig.cache->find(rig.cache->keys(tokens, {{3, "0123456789abcdef"}}), 50).position, 0);
  EXPECT_EQ(rig.cache->find(rig.cache->keys(tokens, {{14, "0123456789abcdef"}}), 50).position, 13);
}

TEST_P(PrefixCacheTest, ShortPromptsPayNothing) {
  Rig rig(GetParam(), {.interval = 64, .least = 24});
  const std::vector<int32_t> tokens = some_tokens(300, 9);
  const auto next = [&](int length, int position) {
    return rig.cache->next_checkpoint(rig.cache->keys(first(tokens, length)), position);
  };
  EXPECT_EQ(next(20, 0), 20);
  EXPECT_EQ(next(64, 0), 64);
  EXPECT_EQ(next(65, 0), 64);
  EXPECT_EQ(next(200, 64), 128);
  EXPECT_EQ(next(200, 192), 200);
  rig.remember(first(tokens, 20));  // shorter than the least: not kept
  EXPECT_EQ(rig.memory->free_checkpoints(), 60);
  EXPECT_EQ(rig.memory->free_slots(), 3);
  EXPECT_EQ(rig.memory->free_pages(), 200);
  rig.remember(first(tokens, 40));
  rig.remember(first(tokens, 60));  // too near to 40
  EXPECT_EQ(rig.find(tokens).position, 40);
  EXPECT_EQ(next(200, 40), 64);  // 24 behind 40
  EXPECT_EQ(next(200, 50), 64);
}

TEST_P(PrefixCacheTest, AnIntervalGrowsBeforeOnePromptTakesAllSlots) {
  const std::vector<int32_t> tokens = some_tokens(1000, 10);
  for (const auto& [slots, stride] : std::map<int, int>{{2, 512}, {8, 512}, {16, 256}, {60, 128}, {600, 128}}) {
    Rig rig(GetParam(), {.interval = 16, .least = 8}, 3, 400, slots);
    const PrefixKeys keys = rig.cache->keys(tokens);
    int count = 0;
    for (int at = rig.cache->next_checkpoint(keys, 0); at < 1000; at = rig.cache->next_checkpoint(keys, at)) {
      EXPECT_EQ(at % stride, 0) << slots;
      ++count;
    }
    EXPECT_EQ(count, 1000 / stride) << slots;
  }
  Rig rig(GetParam(), {.interval = 16, .least = 8}, 3, 400, 16);
  EXPECT_EQ(rig.cache->next_checkpoint(rig.cache->keys(first(tokens, 60)), 0), 16);
}

// The first of many prompts with one beginning leaves no checkpoint there, the second one does, the third one hits.
TEST_P(PrefixCacheTest, WherePathsPartACheckpointIsTakenOnDemand) {
  Rig rig(GetParam(), {.interval = 1024, .least = 16, .drafts = true});
  const std::vector<int32_t> shared = some_tokens(45, 11);
  auto prompt = [&](int user) {
    std::vector<int32_t> tokens = shared;
    for (int32_t t : some_tokens(20, 100 + user)) tokens.push_back(t + 1000 * (user + 1));
    return tokens;
  };
  rig.remember(prompt(0));
  const PrefixKeys second = rig.cache->keys(prompt(1));
  const PrefixCache::Hit miss = rig.cache->find(second, 64);
  EXPECT_EQ(miss.node, -1);
  EXPECT_EQ(miss.known, 40);
  const int pause = rig.cache->next_checkpoint(second, 0);
  EXPECT_EQ(pause, 40);  // the last whole block of the shared beginning
  const SequenceId id = rig.cache->resume(miss).value();
  ASSERT_TRUE(rig.model.feed(id, first(prompt(1), pause)).is_ok());
  rig.cache->keep(id, second, false);
  EXPECT_EQ(rig.cache->next_checkpoint(second, pause), 65);
  ASSERT_TRUE(rig.model.feed(id, prompt(1)).is_ok());
  rig.cache->keep(id, second, true);
  const PrefixKeys third = rig.cache->keys(prompt(2));
  const PrefixCache::Hit hit = rig.cache->find(third, 64);
  EXPECT_EQ(hit.position, 40);
  EXPECT_EQ(rig.cache->next_checkpoint(third, 40), 65);
  const SequenceId resumed = rig.cache->resume(hit).value();
  EXPECT_EQ(rig.model.difference(resumed, first(prompt(2), 40)), "");
  const PrefixCacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.queries, 2u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.hit_tokens, 40u);
  EXPECT_EQ(stats.vetoes_state, 1u);
  EXPECT_EQ(stats.on_device, 3);
  rig.memory->close(resumed);
}

TEST_P(PrefixCacheTest, MissingMtpRowsVetoWhereDraftsAreWanted) {
  for (bool drafts : {false, true}) {
    Rig rig(GetParam(), {.least = 1, .drafts = drafts});
    const std::vector<int32_t> tokens = some_tokens(20, 12);
    const SequenceId id = rig.fed(tokens);
    rig.memory->set_mtp_rows(id, 18);  // 19 of 20 could be there
    rig.cache->keep(id, rig.cache->keys(tokens), true);
    EXPECT_EQ(rig.find(tokens).position, drafts ? 0 : 20);
    EXPECT_EQ(rig.cache->stats().vetoes_mtp, drafts ? 1u : 0u);
    EXPECT_EQ(rig.memory->free_slots(), 3);
  }
}

TEST_P(PrefixCacheTest, TheLeastRecentlyUsedGoesFirstAndLeavesBeforeParents) {
  Rig rig(GetParam(), {.least = 1}, 3, 200, 3);
  const std::vector<int32_t> a = some_tokens(30, 13), b = some_tokens(30, 14), c = some_tokens(30, 15);
  rig.remember(first(a, 10)), rig.remember(first(b, 10)), rig.remember(c);
  const SequenceId id = rig.cache->resume(rig.find(a)).value();  // a is used again
  rig.memory->close(id);
  rig.remember(first(b, 20));  // needs a slot, uses its parent: c goes
  EXPECT_EQ(rig.find(a).position, 10);
  EXPECT_EQ(rig.find(b).position, 20);
  EXPECT_EQ(rig.find(c).position, 0);
  rig.remember(first(c, 12));  // a is older than both of b
  EXPECT_EQ(rig.find(a).position, 0);
  EXPECT_EQ(rig.find(b).position, 20);
  rig.remember(first(a, 12));  // of b's two, used together, the leaf goes
  EXPECT_EQ(rig.find(b).position, 10);
  EXPECT_EQ(rig.cache->stats().dropped, 3u);
}

// One long prompt's checkpoints don't press out what others will come back to.
TEST_P(PrefixCacheTest, WhatWasKeptForAnIntervalAndNeverUsedGoesFirst) {
  Rig rig(GetParam(), {.least = 1}, 3, 200, 4);
  const std::vector<int32_t> chat = some_tokens(20, 60), book = some_tokens(100, 61);
  rig.remember(chat);
  const SequenceId id = rig.memory->open().value();
  auto read_on = [&](int position) {
    ASSERT_TRUE(rig.model.feed(id, first(book, position)).is_ok());
    rig.cache->keep(id, rig.cache->keys(book), false);
  };
  for (int position : {16, 32, 48, 64}) read_on(position);  // the fourth takes the place of the third
  EXPECT_EQ(rig.find(chat).position, 20);
  EXPECT_EQ(rig.find(book).position, 64);
  EXPECT_EQ(rig.find(first(book, 63)).position, 32);
  rig.memory->close(rig.cache->resume(rig.find(first(book, 33))).value());  // somebody goes on from 32
  for (int position : {72, 80, 88}) read_on(position);
  EXPECT_EQ(rig.find(chat).position, 20);
  EXPECT_EQ(rig.find(first(book, 33)).position, 32);
  EXPECT_EQ(rig.find(book).position, 88);
  rig.memory->close(id);
}

// A short answer's end isn't kept beside the end of its prompt, which then stands for both.
TEST_P(PrefixCacheTest, ANodeThatStandsForAnEndIsNotSpare) {
  for (int answer : {3, 30}) {
    Rig rig(GetParam(), {.least = 16}, 3, 200, 3);
    const std::vector<int32_t> chat = some_tokens(60, 62);
    const PrefixKeys keys = rig.cache->keys(chat);
    const SequenceId id = rig.fed(first(chat, 20));
    rig.cache->keep(id, keys, false);
    ASSERT_TRUE(rig.model.feed(id, first(chat, 20 + answer)).is_ok());
    rig.cache->keep(id, keys, true);
    rig.remember(some_tokens(20, 63));
    rig.remember(some_tokens(20, 64));
    // Room for three: with the long answer the prompt's end had to go, with the short one nothing.
    EXPECT_EQ(rig.find(chat).position, answer == 3 ? 20 : 50);
    EXPECT_EQ(rig.find(first(chat, 40)).position, answer == 3 ? 20 : 0);
    rig.remember(some_tokens(20, 65));  // the least recently used goes, as everywhere
    EXPECT_EQ(rig.find(chat).position, 0);
  }
}

TEST_P(PrefixCacheTest, RoomIsMadeOnlyIfThereIsEnoughToFree) {
  Rig rig(GetParam(), {.least = 1}, 3, 20, 8);
  rig.remember(some_tokens(40, 16));                        // 5 pages
  rig.remember(some_tokens(24, 17));                        // 3 pages
  const SequenceId running = rig.fed(some_tokens(64, 18));  // 8 pages
  EXPECT_EQ(rig.memory->free_pages(), 4);
  EXPECT_FALSE(rig.cache->make_room(0, 13));
  EXPECT_EQ(rig.cache->stats().on_device, 2);  // nothing was lost
  EXPECT_TRUE(rig.cache->make_room(0, 4));
  EXPECT_EQ(rig.cache->stats().on_device, 2);
  EXPECT_TRUE(rig.cache->make_room(0, 5));
  EXPECT_EQ(rig.find(some_tokens(40, 16)).position, 0);
  EXPECT_EQ(rig.find(some_tokens(24, 17)).position, 24);
  EXPECT_TRUE(rig.cache->make_room(2, 12));
  EXPECT_EQ(rig.cache->stats().on_device, 0);
  EXPECT_FALSE(rig.cache->make_room(3, 0));  // one of three slots is running
  // Pages that a running sequence has, too, can't be had by dropping its node.
  rig.cache->keep(running, rig.cache->keys(some_tokens(64, 18)), false);
  EXPECT_FALSE(rig.cache->make_room(0, 13));
  EXPECT_EQ(rig.cache->stats().on_device, 1);
  rig.memory->close(running);
  EXPECT_TRUE(rig.cache->make_room(0, 20));
}

TEST_P(PrefixCacheTest, WithoutCheckpointSlotsNothingIsKeptAndNothingLost) {
  Rig rig(GetParam(), {.least = 1}, 2, 20, 0);
  rig.remember(some_tokens(40, 19));
  EXPECT_EQ(rig.memory->free_slots(), 2);
  EXPECT_EQ(rig.memory->free_pages(), 20);
  EXPECT_EQ(rig.find(some_tokens(40, 19)).node, -1);
  EXPECT_EQ(rig.cache->next_checkpoint(rig.cache->keys(some_tokens(5000, 20)), 0), 5000);
}

TEST_P(PrefixCacheTest, AHitThatIsGoneOrHasNoSlotIsSaid) {
  Rig rig(GetParam(), {.least = 1}, 1, 40, 4);
  const std::vector<int32_t> tokens = some_tokens(20, 21);
  rig.remember(tokens);
  const PrefixCache::Hit hit = rig.find(tokens);
  const SequenceId running = rig.cache->resume(hit).value();
  EXPECT_EQ(rig.cache->resume(hit).status().code(), StatusCode::kExhausted);
  EXPECT_EQ(rig.cache->resume({}).status().code(), StatusCode::kExhausted);
  rig.memory->close(running);
  rig.cache->clear();
  EXPECT_EQ(rig.cache->resume(hit).status().code(), StatusCode::kExhausted);
  EXPECT_EQ(rig.memory->free_slots(), 1);
  EXPECT_EQ(rig.cache->stats().queries, 1u);  // only what was answered counts
}

// -- host tier

TEST_P(PrefixCacheTest, TheHostTierKeepsWhatTheDeviceHasNoRoomFor) {
  Rig rig(GetParam(), {.least = 1, .host_bytes = kHuge, .drafts = true}, 3, 200, 2);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 6; ++i) {
    prompts.push_back(some_tokens(10 + 5 * i, 30 + i));
    rig.remember(prompts.back());
  }
  EXPECT_EQ(rig.cache->stats().on_host, 4);
  for (int round = 0; round < 3; ++round)
    for (const auto& tokens : prompts) {
      const SequenceId id = rig.cache->resume(rig.find(tokens)).value();
      EXPECT_EQ(rig.model.difference(id, tokens), "");
      rig.memory->close(id);
    }
  const PrefixCacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits, 18u);
  EXPECT_GE(stats.loads, 16u);
  EXPECT_EQ(stats.saves, 6u);  // an image stays while its node is on the device
  EXPECT_EQ(stats.dropped, 0u);
  EXPECT_EQ(stats.load_failures, 0u);
}

TEST_P(PrefixCacheTest, HostBytesAreAnUpperLimitAndSharedPagesCountOnce) {
  const int64_t slot = SequenceMemory::checkpoint_bytes(small_shape()),
                page = SequenceMemory::page_bytes(small_shape());
  Rig rig(GetParam(), {.least = 1, .host_bytes = 3 * slot + 7 * page, .drafts = true});
  const std::vector<int32_t> tokens = some_tokens(60, 40);
  rig.remember(first(tokens, 33));  // 5 pages
  const SequenceId id = rig.cache->resume(rig.find(tokens)).value();
  ASSERT_TRUE(rig.model.feed(id, first(tokens, 41)).is_ok());
  rig.cache->keep(id, rig.cache->keys(tokens), true);  // 6, of which 4 are the same
  rig.press_out();
  EXPECT_EQ(rig.cache->stats().on_host, 2);
  EXPECT_EQ(rig.cache->stats().host_bytes, 2 * slot + 7 * page);
  // One page more: of the older two the deeper one goes, with the two pages that only it has.
  rig.remember(some_tokens(8, 41));
  rig.press_out();
  EXPECT_EQ(rig.cache->stats().host_bytes, 2 * slot + 6 * page);
  EXPECT_EQ(rig.find(tokens).position, 33);
  // Never more than allowed; what is too large for the whole tier is dropped.
  rig.remember(some_tokens(8 * 20, 42));
  rig.press_out();
  EXPECT_EQ(rig.find(some_tokens(8 * 20, 42)).node, -1);
  EXPECT_EQ(rig.cache->stats().on_host, 2);
  rig.cache->clear();
  EXPECT_EQ(rig.cache->stats().host_bytes, 0);
}

TEST_P(PrefixCacheTest, PagesThatAreOnTheDeviceStillAreSharedOnLoad) {
  Rig rig(GetParam(), {.least = 1, .host_bytes = kHuge, .drafts = true}, 3, 12, 1);
  const std::vector<int32_t> tokens = some_tokens(60, 43);
  const SequenceId id = rig.fed(first(tokens, 40));
  rig.cache->keep(id, rig.cache->keys(tokens), false);
  rig.remember(some_tokens(8, 44));  // presses the node out, while `id` keeps its pages
  EXPECT_TRUE(rig.find(tokens).on_host);
  const int free = rig.memory->free_pages();
  const SequenceId resumed = rig.cache->resume(rig.find(tokens)).value();
  EXPECT_EQ(rig.memory->free_pages(), free + 1);  // one page of the other node's came free, none was taken
  EXPECT_EQ(rig.model.difference(resumed, first(tokens, 40)), "");
  // Once somebody writes a page it isn't that page any more.
  rig.memory->close(resumed);
  rig.remember(some_tokens(8, 45));
  ASSERT_TRUE(rig.model.feed(id, first(tokens, 43)).is_ok());
  std::vector<int32_t> branch = first(tokens, 40);
  branch.insert(branch.end(), {900, 901});
  const SequenceId again = rig.cache->resume(rig.find(branch)).value();
  EXPECT_EQ(rig.model.difference(again, first(tokens, 40)), "");
  ASSERT_TRUE(rig.model.feed(again, branch).is_ok());
  EXPECT_EQ(rig.model.difference(again, branch), "");
  EXPECT_EQ(rig.model.difference(id, first(tokens, 43)), "");
}

// -- against a plain model

// With room for all, a map of beginnings knows what the tree must find. With little room, whatever is found must have
// been kept once, and be right in every byte; and nothing may leak.
TEST_P(PrefixCacheTest, RandomTrafficIsAnsweredAsByAPlainMap) {
  for (const int scarcity : {0, 1, 2, 3}) {
    const int checkpoints = scarcity == 0 ? 400 : 5, pages = scarcity == 0 ? 4000 : 60;
    const int64_t slot = SequenceMemory::checkpoint_bytes(small_shape()),
                  page = SequenceMemory::page_bytes(small_shape());
    const int64_t host = scarcity < 2 ? 0 : scarcity == 2 ? kHuge : 5 * slot + 20 * page;
    Rig rig(GetParam(), {.interval = 16, .least = 3, .host_bytes = host, .drafts = true}, 4, pages, checkpoints);
    std::map<std::vector<int32_t>, int> kept;
    std::mt19937 random(scarcity);
    std::vector<std::vector<int32_t>> old_prompts = {{}};
    int hits = 0, loads = 0;
    for (int step = 0; step < 150; ++step) {
      // A beginning of an old prompt, and something new.
      const auto& old = old_prompts[random() % old_prompts.size()];
      std::vector<int32_t> tokens = first(old, static_cast<int>(random() % (old.size() + 1)));
      for (int n = static_cast<int>(1 + random() % 30); n > 0; --n)
        tokens.push_back(static_cast<int32_t>(random() % 3));
      if (tokens.size() > 90) tokens.resize(90);
      old_prompts.push_back(tokens);
      const PrefixKeys keys = rig.cache->keys(tokens);
      const int limit = static_cast<int>(tokens.size()) - 1;
      PrefixCache::Hit hit = rig.cache->find(keys, limit);
      if (scarcity == 0) {
        int longest = 0;
        for (const auto& [beginning, n] : kept)
          if (static_cast<int>(beginning.size()) <= limit &&
              std::equal(beginning.begin(), beginning.end(), tokens.begin()))
            longest = std::max(longest, static_cast<int>(beginning.size()));
        ASSERT_EQ(hit.position, longest);
      } else if (hit.position > 0) {
        ASSERT_TRUE(kept.contains(first(tokens, hit.position)));
      }
      ASSERT_TRUE(rig.cache->make_room(1, 0));
      Result<SequenceId> resumed = rig.cache->resume(hit);
      if (!resumed.is_ok()) hit = {}, resumed = rig.cache->resume(hit);  // no room to load it
      const SequenceId id = resumed.value();
      hits += hit.position > 0, loads += hit.on_host;
      ASSERT_EQ(rig.model.difference(id, first(tokens, hit.position)), "")
          << "scarcity " << scarcity << " step " << step;
      // Prefill, with pauses.
      for (int at = hit.position; at < static_cast<int>(tokens.size());) {
        int end = rig.cache->next_checkpoint(keys, at);
        ASSERT_GT(end, at);
        ASSERT_TRUE(rig.cache->make_room(0, (end + 7) / 8 - at / 8 + 2));
        ASSERT_TRUE(rig.model.feed(id, first(tokens, end)).is_ok());
        if (end < static_cast<int>(tokens.size())) {
          const int nodes = static_cast<int>(rig.cache->stats().kept);
          rig.cache->keep(id, keys, false);
          if (static_cast<int>(rig.cache->stats().kept) > nodes) ++kept[first(tokens, end)];
        }
        at = end;
      }
      ASSERT_EQ(rig.model.difference(id, tokens), "");
      const auto before = rig.cache->stats().kept;
      rig.cache->keep(id, keys, random() % 4 != 0);
      if (rig.cache->stats().kept > before) ++kept[tokens];
      if (rig.memory->free_slots() < 4) {
        ASSERT_EQ(rig.model.difference(id, tokens), "");
        rig.memory->close(id);
      }
      ASSERT_EQ(rig.memory->free_slots(), 4);
      ASSERT_LE(rig.cache->stats().host_bytes, host);
    }
    EXPECT_GT(hits, 10) << scarcity;
    EXPECT_GE(loads, scarcity < 2 ? 0 : 6) << scarcity;
    rig.cache->clear();
    EXPECT_EQ(rig.memory->free_pages(), pages);
    EXPECT_EQ(rig.memory->free_checkpoints(), checkpoints);
    EXPECT_EQ(rig.cache->stats().host_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PrefixCacheTest, ::testing::Values("cpu", "sim"));

}  // namespace
}  // namespace lathe
