#include "engine/fair_queue.h"

#include <gtest/gtest.h>

#include "engine/admission.h"

namespace lathe {
namespace {

using std::chrono::seconds;

const SteadyTime kStart{};

// Serves one item after another, each costing `rows`, and tells the order of users.
std::string order(FairQueue<char>& q, int count, double rows, SteadyTime now) {
  std::string users;
  for (int i = 0; i < count && q.next(now); ++i) {
    const char user = *q.next(now);
    bool gone = false;
    q.dispatched(std::string(1, user));
    q.remove_if([&](char c) { return !gone && c == user && (gone = true); });
    q.charge(std::string(1, user), rows);
    users += user;
  }
  return users;
}

TEST(FairQueue, UsersOfOneClassTakeTurnsHoweverManyRequestsTheyHave) {
  FairQueue<char> q;
  for (int i = 0; i < 6; ++i) q.push('a', "a", 0, kStart + seconds(0));
  for (int i = 0; i < 2; ++i) q.push('b', "b", 0, kStart + seconds(1));
  q.push('c', "c", 0, kStart + seconds(1));
  const std::string served = order(q, 5, 100, kStart + seconds(1));
  EXPECT_EQ(std::count(served.begin(), served.end(), 'a'), 2);
  EXPECT_EQ(std::count(served.begin(), served.end(), 'b'), 2);
  EXPECT_EQ(std::count(served.begin(), served.end(), 'c'), 1);
}

TEST(FairQueue, WhoWasAwayHasNoClaimOnThatTime) {
  FairQueue<char> q;
  for (int i = 0; i < 10; ++i) q.push('a', "a", 0, kStart);
  order(q, 4, 1000, kStart);
  for (int i = 0; i < 10; ++i) q.push('b', "b", 0, kStart);
  const std::string served = order(q, 8, 1000, kStart);
  EXPECT_GE(std::count(served.begin(), served.end(), 'a'), 3) << served;
}

TEST(FairQueue, HigherPriorityGoesFirstAndWaitingRaisesIt) {
  FairQueue<char> q(/*raise_seconds=*/5);
  q.push('l', "l", -10, kStart);
  q.push('h', "h", 10, kStart + seconds(60));
  EXPECT_EQ(*q.next(kStart + seconds(60)), 'h');
  q.push('n', "n", 0, kStart + seconds(100));
  EXPECT_EQ(*q.next(kStart + seconds(60)), 'h');
  // 21 classes apart: after 105 seconds more of waiting the low one passes whoever comes new.
  FairQueue<char> late(5);
  late.push('l', "l", -10, kStart);
  late.push('h', "h", 10, kStart + seconds(106));
  EXPECT_EQ(*late.next(kStart + seconds(106)), 'l');
}

TEST(Admission, BoundsAreHeldAndSaid) {
  const AdmissionLimits limits{
      .max_queue = 2, .max_queued_tokens = 100, .max_wait_seconds = 60, .max_context = 50, .max_choices = 4};
  EXPECT_FALSE(refuse(10, 1, {}, limits));
  using Why = Refusal::Why;
  auto why = [&](const AdmissionLoad& load) { return refuse(10, 1, load, limits)->why; };
  EXPECT_EQ(why({.queued_requests = 2}), Why::kQueueFull);
  EXPECT_EQ(why({.queued_requests = 1, .queued_tokens = 91}), Why::kQueueTokens);
  const auto wait = refuse(10, 1, {.queued_requests = 1, .queued_tokens = 80, .tokens_per_second = 1}, limits);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->why, Why::kWait);
  EXPECT_EQ(wait->retry_after_seconds, 20);
  // However few rows wait: places come free one in so many seconds.
  const AdmissionLimits longer{.max_queue = 100, .max_queued_tokens = 10000, .max_context = 50, .max_choices = 4};
  EXPECT_FALSE(refuse(10, 1, {.queued_requests = 10, .tokens_per_second = 1000, .seconds_a_start = 5.9}, longer));
  EXPECT_EQ(refuse(10, 1, {.queued_requests = 10, .tokens_per_second = 1000, .seconds_a_start = 6.1}, longer)->why,
            Why::kWait);
  EXPECT_EQ(refuse(50, 1, {}, limits)->why, Why::kTooLong);
  EXPECT_EQ(refuse(10, 5, {}, limits)->why, Why::kTooLong);
}

}  // namespace
}  // namespace lathe
