#include <cstring>

#include "ops/kda_host.h"

// What follows from the recurrence alone: where a run is cut, what lies beside it and how it is shared out can't
// matter.
namespace lathe {
namespace {

using namespace testing;

const std::vector<KdaTestSizes>& shapes() {
  static const std::vector<KdaTestSizes> all = {
      {.heads = 2, .k = 16, .v = 24},                        // K != V: a square hides a transpose
      {.heads = 1, .k = 19, .v = 7, .width = 2, .ring = 1},  // off every vector
      {.heads = 1, .k = 33, .v = 40, .width = 5, .bound = 0, .ring = 9},
      {.heads = 1, .k = 8, .v = 50, .width = 3, .bound = -2.5f, .ring = 2},
      {.heads = 2, .k = 20, .v = 16, .width = 1, .ring = 0},  // no convolution to speak of
      {.heads = 1, .k = 128, .v = 128, .ring = 6},
  };
  return all;
}

TEST(KdaPrefill, CutAnywhereEqualsUncut) {
  Host host(1);
  for (const KdaTestSizes& sizes : shapes())
    for (bool retain : {false, true}) {
      KdaSequence sequence(host, sizes, 75, 3, retain);
      const KdaOutcome oracle = sequence.prefilled(host.with("kda_prefill=reference"));
      for (const std::string& name : variant_names(kKdaPrefill)) {
        const OpContext ctx = host.with("kda_prefill=" + name);
        for (std::vector<int64_t> cuts : {std::vector<int64_t>{}, {1}, {2, 3}, {16, 32, 48}, {5, 22, 23, 60}, {74}}) {
          const KdaOutcome cut = sequence.prefilled(ctx, cuts);
          EXPECT_LE(rms_ratio(cut.y, oracle.y), 3e-6) << name << " k " << sizes.k << " cuts " << cuts.size();
          EXPECT_LE(rms_ratio(cut.state, oracle.state), 3e-6) << name << " k " << sizes.k << " cuts " << cuts.size();
        }
      }
    }
}

TEST(KdaPrefill, SequentialIsDecodeBitForBit) {
  Host host(1);
  for (KdaTestSizes sizes : shapes())
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      sizes.dtype = dtype;
      KdaSequence sequence(host, sizes, 41);
      const OpContext ctx = host.with("kda_prefill=sequential");
      const KdaOutcome stepped = sequence.decoded(host.ctx);
      for (std::vector<int64_t> cuts : {std::vector<int64_t>{}, {7, 30}}) {
        const KdaOutcome run = sequence.prefilled(ctx, cuts);
        EXPECT_EQ(run.y, stepped.y) << sizes.k;
        EXPECT_EQ(run.state, stepped.state) << sizes.k;
      }
    }
}

// A run of few tokens and the rest of a chunked run go token by token, too: drafts under verification cost no accuracy.
TEST(KdaPrefill, ShortRunsAreDecodeBitForBit) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 9);
  EXPECT_EQ(sequence.prefilled(host.ctx).y, sequence.decoded(host.ctx).y);
}

TEST(KdaPrefill, ThreadsAndPartsOfAHeadChangeNoBit) {
  KdaTestSizes sizes{.heads = 1, .k = 32, .v = 128};
  std::vector<KdaOutcome> outcomes;
  for (int threads : {1, 2, 5}) {
    Host host(threads);
    KdaSequence sequence(host, sizes, 70);
    outcomes.push_back(sequence.prefilled(host.ctx));
    sizes.dtype = DType::kF32;
  }
  for (const KdaOutcome& o : outcomes) {
    EXPECT_EQ(o.y, outcomes[0].y);
    EXPECT_EQ(o.state, outcomes[0].state);
  }
}

// Several sequences in one call, against each of them alone; padding in the middle leaves memory as it was.
TEST(KdaPrefill, CompanyAndPaddingChangeNoBit) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 60);
  for (const std::string& name : variant_names(kKdaPrefill)) {
    const OpContext ctx = host.with("kda_prefill=" + name);
    const KdaMemory together = sequence.memory(4), apart = sequence.memory(4);
    std::memcpy(apart.state.data, together.state.data, 4 * together.state.item_bytes());
    std::memcpy(apart.conv.data, together.conv.data, 4 * together.conv.item_bytes());
    const std::vector<float> untouched = sequence.slot_contents(together, 3);
    const Rows y = sequence.fresh_y(60), alone = sequence.fresh_y(60);
    // Rows 0..19: slot 2 from position 0; 20..29: padding; 30..59: slot 0 from position 30.
    KdaPrefillArgs args{.in = sequence.in,
                        .layer = sequence.layer,
                        .runs = {host.ints({0, 20, 30, 30, 60}), host.ints({0, 5, 7, 30})},
                        .slot = host.ints({2, -1, 1, 0}),
                        .memory = together,
                        .y = y};
    OpContext call = ctx;
    KdaSequence::expect_ok(kda_prefill(call, args));
    sequence.prefill(ctx, apart, 0, 20, alone, 2);
    sequence.prefill(ctx, apart, 30, 60, alone, 0);
    for (int slot : {0, 1, 2, 3})
      EXPECT_EQ(sequence.slot_contents(together, slot), sequence.slot_contents(apart, slot)) << name;
    EXPECT_EQ(sequence.slot_contents(together, 3), untouched);
    for (int64_t row = 0; row < 60; ++row) {
      const auto got = Host::values(y.slice(row, 1));
      if (row >= 20 && row < 30)
        EXPECT_EQ(got, std::vector<float>(got.size())) << name << row;
      else
        EXPECT_EQ(got, Host::values(alone.slice(row, 1))) << name << row;
    }
  }
}

TEST(KdaPrefill, CheckpointIsTheStateOfARunThatEndsThere) {
  Host host(1);
  for (const KdaTestSizes& sizes : shapes()) {
    KdaSequence sequence(host, sizes, 50);
    for (const std::string& name : variant_names(kKdaPrefill))
      for (int32_t past : {0, 3}) {
        const OpContext ctx = host.with("kda_prefill=" + name);
        const KdaMemory m = sequence.memory(6), stopped = sequence.memory(6);
        std::memcpy(stopped.state.data, m.state.data, 6 * m.state.item_bytes());
        std::memcpy(stopped.conv.data, m.conv.data, 6 * m.conv.item_bytes());
        const Rows y = sequence.fresh_y(50), uninterrupted = sequence.fresh_y(50);
        KdaPrefillArgs args{.in = sequence.slice(past, 50 - past),
                            .layer = sequence.layer,
                            .runs = {host.ints({0, 50 - past}), host.ints({past})},
                            .slot = host.ints({1}),
                            .memory = m,
                            .checkpoint_row = host.ints({4, 15, 20, 49 - past}),
                            .checkpoint_slot = host.ints({2, 3, 4, 5}),
                            .y = y.slice(past, 50 - past)};
        OpContext call = ctx;
        KdaSequence::expect_ok(kda_prefill(call, args));
        int32_t slot = 2;
        for (int32_t row : {4, 15, 20, 49 - past}) {
          const KdaMemory fresh = stopped;
          const std::vector<char> state(static_cast<char*>(fresh.state.at(1)),
                                        static_cast<char*>(fresh.state.at(1)) + fresh.state.item_bytes());
          const std::vector<char> conv(static_cast<char*>(fresh.conv.at(1)),
                                       static_cast<char*>(fresh.conv.at(1)) + fresh.conv.item_bytes());
          sequence.prefill(ctx, fresh, past, past + row + 1, uninterrupted);
          EXPECT_EQ(sequence.slot_contents(m, slot++), sequence.slot_contents(fresh, 1))
              << name << " k " << sizes.k << " row " << row;
          std::memcpy(fresh.state.at(1), state.data(), state.size());
          std::copy(conv.begin(), conv.end(), static_cast<char*>(fresh.conv.at(1)));
        }
        sequence.prefill(ctx, stopped, past, 50, uninterrupted);
        EXPECT_EQ(Host::values(y.slice(past, 50 - past)), Host::values(uninterrupted.slice(past, 50 - past))) << name;
      }
  }
}

// The teeth of the tests above: without what the first part left behind, the second must come out wrong.
TEST(KdaPrefill, DroppingStateOrHistoryShows) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 40);
  for (const std::string& name : variant_names(kKdaPrefill)) {
    const OpContext ctx = host.with("kda_prefill=" + name);
    const KdaOutcome whole = sequence.prefilled(ctx);
    for (bool drop_state : {true, false}) {
      const KdaMemory m = sequence.memory();
      const Rows y = sequence.fresh_y(40);
      sequence.prefill(ctx, m, 0, 37, y);
      if (drop_state)
        std::memset(m.state.at(1), 0, m.state.item_bytes());
      else
        std::memset(m.conv.at(1), 0, m.conv.item_bytes());
      sequence.prefill(ctx, m, 37, 40, y);
      EXPECT_GT(rms_ratio(sequence.outcome(m, y).y, whole.y), 1e-2) << name << (drop_state ? " state" : " ring");
    }
  }
}

// Chunks whose log gates sum far below what a factored form could hold.
TEST(KdaPrefill, WithoutABoundNoGateIsTooStrong) {
  Host host(1);
  for (float mean : {0.0f, 5.0f, 40.0f, 200.0f}) {
    KdaSequence sequence(host, {.heads = 1, .k = 24, .v = 24, .bound = 0}, 50);
    sequence.in.forget = host.rows(50, 24, sequence.normal(50 * 24, 10, mean));
    const KdaOutcome oracle = sequence.prefilled(host.with("kda_prefill=reference"));
    for (const std::string& name : variant_names(kKdaPrefill))
      EXPECT_LE(rms_ratio(sequence.prefilled(host.with("kda_prefill=" + name)).y, oracle.y), 3e-6)
          << name << " " << mean;
  }
}

TEST(KdaPrefill, BoundsOfAnySizeStayInRange) {
  Host host(1);
  for (float bound : {-0.5f, -5.0f, -10.0f, -40.0f}) {
    KdaSequence sequence(host, {.heads = 1, .k = 24, .v = 24, .bound = bound}, 50, 1, false);
    sequence.in.forget = host.rows(50, 24, sequence.normal(50 * 24, 3, 8));  // all near the bound
    const KdaOutcome oracle = sequence.prefilled(host.with("kda_prefill=reference"));
    for (const std::string& name : variant_names(kKdaPrefill))
      EXPECT_LE(rms_ratio(sequence.prefilled(host.with("kda_prefill=" + name)).y, oracle.y), 3e-6)
          << name << " " << bound;
  }
}

TEST(KdaPrefill, RefusesWhatContradictsItself) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 4);
  KdaPrefillArgs args{.in = sequence.in,
                      .layer = sequence.layer,
                      .runs = {host.ints({0, 4}), host.ints({0})},
                      .slot = host.ints({1}),
                      .memory = sequence.memory(),
                      .y = sequence.fresh_y(4)};
  OpContext ctx = host.ctx;
  ASSERT_TRUE(kda_prefill(ctx, args).is_ok());
  KdaPrefillArgs wrong = args;
  wrong.memory.ring = 2;
  EXPECT_EQ(kda_prefill(ctx, wrong).code(), StatusCode::kInvalid);
  wrong = args, wrong.layer.k = 17;
  EXPECT_EQ(kda_prefill(ctx, wrong).code(), StatusCode::kInvalid);
  wrong = args, wrong.in.beta.dtype = DType::kBF16;
  EXPECT_EQ(kda_prefill(ctx, wrong).code(), StatusCode::kInvalid);
  wrong = args, wrong.layer.bound = 5;
  EXPECT_EQ(kda_prefill(ctx, wrong).code(), StatusCode::kInvalid);
  wrong = args, wrong.slot = host.ints({1, 2});
  EXPECT_EQ(kda_prefill(ctx, wrong).code(), StatusCode::kInvalid);
}

}  // namespace
}  // namespace lathe
