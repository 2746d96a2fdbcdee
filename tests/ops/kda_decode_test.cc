#include <cstring>

#include "ops/kda_host.h"

namespace lathe {
namespace {

using namespace testing;

// Follows from the formula alone: behind a closed gate (a = 0) the past can't matter.
TEST(KdaDecode, AClosedGateForgetsThePast) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24, .bound = 0}, 5);
  sequence.in.forget = host.rows(5, 32, std::vector<float>(5 * 32, 1e4f));
  for (const std::string& name : variant_names(kKdaDecode)) {
    const OpContext ctx = host.with("kda_decode=" + name);
    const KdaMemory used = sequence.memory(), fresh = sequence.memory();
    std::memcpy(fresh.conv.data, used.conv.data, 3 * used.conv.item_bytes());
    std::memset(fresh.state.data, 0, 3 * fresh.state.item_bytes());
    const Rows y_used = sequence.fresh_y(5), y_fresh = sequence.fresh_y(5);
    sequence.decode(ctx, used, 4, y_used), sequence.decode(ctx, fresh, 4, y_fresh);
    EXPECT_EQ(Host::values(y_used.slice(4, 1)), Host::values(y_fresh.slice(4, 1))) << name;
    EXPECT_EQ(sequence.outcome(used, y_used).state, sequence.outcome(fresh, y_fresh).state) << name;
  }
}

// An empty slot is empty whatever its last owner left there.
TEST(KdaDecode, PositionZeroStartsFromNothing) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 9);
  for (const std::string& name : variant_names(kKdaDecode)) {
    const OpContext ctx = host.with("kda_decode=" + name);
    EXPECT_EQ(sequence.decoded(ctx).y, sequence.decoded(ctx).y) << name;  // memory() is fresh rubbish each time
  }
}

TEST(KdaDecode, CompanyAndPaddingChangeNoBit) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 3, .k = 20, .v = 9}, 8);
  for (const std::string& name : variant_names(kKdaDecode)) {
    const OpContext ctx = host.with("kda_decode=" + name);
    const KdaMemory together = sequence.memory(5), apart = sequence.memory(5);
    std::memcpy(apart.state.data, together.state.data, 5 * together.state.item_bytes());
    std::memcpy(apart.conv.data, together.conv.data, 5 * together.conv.item_bytes());
    const Rows y = sequence.fresh_y(8), alone = sequence.fresh_y(8);
    KdaDecodeArgs args{.in = sequence.in,
                       .layer = sequence.layer,
                       .past = host.ints({0, 1, 2, 3, 4, 5, 6, 7}),
                       .slot = host.ints({-1, 3, -1, 0, 1, -1, 4, -1}),
                       .memory = together,
                       .y = y};
    OpContext call = ctx;
    KdaSequence::expect_ok(kda_decode(call, args));
    for (int row : {1, 3, 4, 6}) sequence.decode(ctx, apart, row, alone, args.slot[row]);
    for (int slot = 0; slot < 5; ++slot)
      EXPECT_EQ(sequence.slot_contents(together, slot), sequence.slot_contents(apart, slot)) << name;
    for (int row = 0; row < 8; ++row) {
      const auto got = Host::values(y.slice(row, 1));
      EXPECT_EQ(got, args.slot[row] < 0 ? std::vector<float>(got.size()) : Host::values(alone.slice(row, 1)))
          << name << row;
    }
  }
}

// A ring with room for drafts: rejected rows are undone by the state alone, since the position finds the right history.
TEST(KdaDecode, ALargerRingRollsBackByPosition) {
  Host host(1);
  for (int width : {2, 4, 5})
    for (const std::string& name : variant_names(kKdaDecode)) {
      KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24, .width = width, .ring = width - 1 + 3}, 30);
      const OpContext ctx = host.with("kda_decode=" + name);
      const KdaOutcome straight = sequence.decoded(ctx);
      const KdaMemory m = sequence.memory();
      const Rows y = sequence.fresh_y(30), drafts = sequence.fresh_y(30);
      for (int64_t t = 0; t < 30; ++t) {
        if (t % 5 == 2) {  // three rows ahead, then back
          const std::vector<float> state(m.state.f32(1), m.state.f32(1) + m.state.item_size);
          for (int64_t ahead = t; ahead < std::min<int64_t>(t + 3, 30); ++ahead) sequence.decode(ctx, m, ahead, drafts);
          std::copy(state.begin(), state.end(), m.state.f32(1));
        }
        sequence.decode(ctx, m, t, y);
      }
      EXPECT_EQ(sequence.outcome(m, y).y, straight.y) << name << width;
    }
}

TEST(KdaDecode, DroppingStateOrHistoryShows) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 20);
  for (const std::string& name : variant_names(kKdaDecode))
    for (bool drop_state : {true, false}) {
      const OpContext ctx = host.with("kda_decode=" + name);
      const KdaMemory m = sequence.memory();
      const Rows y = sequence.fresh_y(20);
      for (int64_t t = 0; t < 20; ++t) {
        if (t == 19 && drop_state) std::memset(m.state.at(1), 0, m.state.item_bytes());
        if (t == 19 && !drop_state) std::memset(m.conv.at(1), 0, m.conv.item_bytes());
        sequence.decode(ctx, m, t, y);
      }
      const std::vector<float> whole = sequence.decoded(ctx).y, cut = sequence.outcome(m, y).y;
      const std::vector<float> last(whole.end() - 48, whole.end()), wrong(cut.end() - 48, cut.end());
      EXPECT_GT(rms_ratio(wrong, last), 5e-2) << name << (drop_state ? " state" : " ring");
    }
}

TEST(KdaDecode, EqualsOneShotPrefillInEveryWidth) {
  Host host(1);
  for (int width : {1, 2, 3, 4, 5}) {
    KdaSequence sequence(host, {.heads = 1, .k = 24, .v = 16, .width = width, .ring = width - 1}, 40);
    const KdaOutcome oracle = sequence.prefilled(host.with("kda_prefill=reference"));
    for (const std::string& name : variant_names(kKdaDecode)) {
      const KdaOutcome stepped = sequence.decoded(host.with("kda_decode=" + name));
      EXPECT_LE(rms_ratio(stepped.y, oracle.y), 3e-6) << name << width;
      EXPECT_LE(rms_ratio(stepped.state, oracle.state), 3e-6) << name << width;
    }
  }
}

}  // namespace
}  // namespace lathe
