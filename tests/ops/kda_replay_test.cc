#include <cstring>

#include "ops/kda_host.h"

namespace lathe {
namespace {

using namespace testing;

// Rings of any length that the gate allows, steps of any number of rows, whatever the ring had before.
TEST(KdaReplay, EqualsDecode) {
  Host host(1);
  struct Shape {
    KdaTestSizes sizes;
    int length, rows;
  };
  for (const Shape& s : {Shape{{.heads = 2, .k = 16, .v = 24}, 16, 1},
                         {{.heads = 1, .k = 19, .v = 7, .width = 2, .ring = 1}, 5, 2},
                         {{.heads = 1, .k = 33, .v = 40, .width = 5, .bound = 0, .ring = 4}, 16, 3},
                         {{.heads = 1, .k = 24, .v = 8, .width = 3, .bound = -2, .ring = 2}, 40, 7},
                         {{.heads = 1, .k = 128, .v = 128}, 16, 4},
                         {{.heads = 1, .k = 16, .v = 16}, 1, 1}})
    for (bool retain : {false, true}) {
      KdaSequence sequence(host, s.sizes, 70, 2, retain);
      const KdaOutcome oracle = sequence.decoded(host.with("kda_decode=reference"));
      for (const std::string& name : variant_names(kKdaReplay)) {
        const KdaOutcome replayed = sequence.replayed(host.with("kda_replay=" + name), s.length, s.rows);
        EXPECT_LE(rms_ratio(replayed.y, oracle.y), 3e-6) << name << " k " << s.sizes.k << " rows " << s.rows;
        EXPECT_LE(rms_ratio(replayed.state, oracle.state), 3e-6) << name << " k " << s.sizes.k << " rows " << s.rows;
      }
    }
}

// Drafts of three rows, of which 0, 1, 2 or 3 are accepted: what is rejected leaves nothing behind.
TEST(KdaReplay, RejectedDraftsLeaveNothingBehind) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24, .ring = 3 + 4}, 64);
  const KdaOutcome oracle = sequence.decoded(host.with("kda_decode=reference"));
  for (const std::string& name : variant_names(kKdaReplay)) {
    const OpContext ctx = host.with("kda_replay=" + name);
    KdaReplayArgs args = sequence.replay_args(8, DType::kF32);
    const Rows y = sequence.fresh_y(64);
    // Rejected rows are rows of other tokens: the sequence's, shifted.
    KdaSequence wrong(host, sequence.sizes, 64, 9);
    wrong.layer = sequence.layer;
    int64_t t = 0;
    for (int round = 0; t < 64; ++round) {
      const int64_t rows = std::min<int64_t>(3, 64 - t);
      const int accepted = static_cast<int>(std::min<int64_t>(rows, round % 4));
      const Rows scratch = sequence.fresh_y(64);
      KdaRows mixed = sequence.slice(t, rows);
      std::vector<std::vector<char>> saved;
      for (auto [to, from] : {std::pair{&mixed.qkv, &wrong.in.qkv},
                              {&mixed.forget, &wrong.in.forget},
                              {&mixed.beta, &wrong.in.beta},
                              {&mixed.gate, &wrong.in.gate}}) {
        char* begin = static_cast<char*>(to->at(accepted));
        const size_t bytes = (rows - accepted) * to->stride * dtype_bytes(to->dtype);
        saved.emplace_back(begin, begin + bytes);
        std::copy_n(static_cast<char*>(from->at(t)), bytes, begin);
      }
      sequence.replay_step(ctx, args, t, t + rows, scratch);
      int n = 0;
      for (Rows* to : {&mixed.qkv, &mixed.forget, &mixed.beta, &mixed.gate})
        std::copy(saved[n].begin(), saved[n].end(), static_cast<char*>(to->at(accepted))), ++n;
      if (accepted) std::memcpy(y.at(t), scratch.at(t), accepted * y.stride * 4);
      sequence.advance(args, accepted);
      t += accepted;
    }
    sequence.flush(ctx, args);
    const KdaOutcome got = sequence.outcome(args.memory, y);
    EXPECT_LE(rms_ratio(got.y, oracle.y), 3e-6) << name;
    EXPECT_LE(rms_ratio(got.state, oracle.state), 3e-6) << name;
  }
}

// A step of several rows is as many steps of one, bit for bit, whatever the ring's dtype: a record is read as it is
// kept.
TEST(KdaReplay, RowsOfAStepEqualStepsOfOne) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24, .ring = 3 + 4}, 12);
  for (const std::string& name : variant_names(kKdaReplay))
    for (DType ring : {DType::kF32, DType::kBF16}) {
      const OpContext ctx = host.with("kda_replay=" + name);
      KdaReplayArgs one = sequence.replay_args(16, ring), several = sequence.replay_args(16, ring);
      const Rows y_one = sequence.fresh_y(12), y_several = sequence.fresh_y(12);
      for (int64_t t = 0; t < 12; ++t) sequence.replay_step(ctx, one, t, t + 1, y_one), sequence.advance(one, 1);
      for (int64_t t = 0; t < 12; t += 4)
        sequence.replay_step(ctx, several, t, t + 4, y_several), sequence.advance(several, 4);
      EXPECT_LE(rms_ratio(Host::values(y_several), Host::values(y_one)), name == "reference" ? 0 : 1e-6) << name;
    }
}

// Gates so strong that a key can't be pre-decayed: single rows beyond -80, alone and in the middle of a step.
TEST(KdaReplay, WithoutABoundNoGateIsTooStrong) {
  Host host(1);
  for (float mean : {2.0f, 30.0f, 120.0f, 400.0f})
    for (int rows : {1, 3}) {
      KdaSequence sequence(host, {.heads = 1, .k = 24, .v = 16, .bound = 0}, 60);
      std::vector<float> forget = sequence.normal(60 * 24, 3, -6);
      for (size_t i = 0; i < forget.size(); i += 7) forget[i] = mean * (0.5f + static_cast<float>(i % 5) / 4);
      sequence.in.forget = host.rows(60, 24, forget);
      const KdaOutcome oracle = sequence.decoded(host.with("kda_decode=reference"));
      // The ring's own fp32 rounds a log gate of -400 by 1.5e-5, and so the decay between two of them.
      const double tolerance = mean > 100 ? 1e-5 : 3e-6;
      for (const std::string& name : variant_names(kKdaReplay)) {
        const KdaOutcome replayed = sequence.replayed(host.with("kda_replay=" + name), 16, rows);
        EXPECT_LE(rms_ratio(replayed.y, oracle.y), tolerance) << name << " mean " << mean << " rows " << rows;
        EXPECT_LE(rms_ratio(replayed.state, oracle.state), tolerance) << name << " mean " << mean << " rows " << rows;
      }
    }
}

TEST(KdaReplay, TheRingsDtypeAloneDecidesItsError) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 1, .k = 64, .v = 64}, 400);
  const KdaOutcome oracle = sequence.decoded(host.with("kda_decode=reference"));
  KdaReplayArgs args = sequence.replay_args(16, DType::kBF16);
  const Rows y = sequence.fresh_y(400);
  for (int64_t t = 0; t < 400; ++t) sequence.replay_step(host.ctx, args, t, t + 1, y), sequence.advance(args, 1);
  sequence.flush(host.ctx, args);
  const KdaOutcome got = sequence.outcome(args.memory, y);
  EXPECT_LE(rms_ratio(got.state, oracle.state), 5e-3);
  EXPECT_GT(rms_ratio(got.state, oracle.state), 1e-5);  // else bf16 isn't what was tested
}

TEST(KdaReplay, DroppingRecordsShows) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 30);
  const KdaOutcome oracle = sequence.decoded(host.with("kda_decode=reference"));
  for (const std::string& name : variant_names(kKdaReplay)) {
    const OpContext ctx = host.with("kda_replay=" + name);
    KdaReplayArgs args = sequence.replay_args(16, DType::kF32);
    const Rows y = sequence.fresh_y(30);
    for (int64_t t = 0; t < 30; ++t) {
      if (t == 29) const_cast<int32_t&>(args.cursor[1]) = 0;  // 13 committed records forgotten
      sequence.replay_step(ctx, args, t, t + 1, y), sequence.advance(args, 1);
    }
    const std::vector<float> got = Host::values(y.slice(29, 1)), want(oracle.y.end() - 48, oracle.y.end());
    EXPECT_GT(rms_ratio(got, want), 5e-2) << name;
  }
}

TEST(KdaReplay, PaddingAndOtherSlotsStayUntouched) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24, .ring = 4}, 6);
  for (const std::string& name : variant_names(kKdaReplay)) {
    OpContext ctx = host.with("kda_replay=" + name);
    KdaReplayArgs args = sequence.replay_args(8, DType::kF32);
    const std::vector<float> zero = sequence.slot_contents(args.memory, 0),
                             two = sequence.slot_contents(args.memory, 2);
    args.in = sequence.slice(0, 6);
    args.runs = {host.ints({0, 2, 4, 6}), host.ints({0, 0, 0})};
    args.slot = host.ints({-1, 1, -1});
    args.y = sequence.fresh_y(6);
    KdaSequence::expect_ok(kda_replay(ctx, args));
    EXPECT_EQ(sequence.slot_contents(args.memory, 0), zero) << name;
    EXPECT_EQ(sequence.slot_contents(args.memory, 2), two) << name;
    for (int row : {0, 1, 4, 5}) EXPECT_EQ(Host::values(args.y.slice(row, 1)), std::vector<float>(48)) << name;
  }
}

TEST(KdaReplay, RefusesARingThatItsGateOverflows) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 1, .k = 16, .v = 16}, 1);
  KdaReplayArgs args = sequence.replay_args(17, DType::kF32);  // 16·5 = 80
  args.flush = true;
  args.in = sequence.slice(0, 0), args.y = sequence.fresh_y(0);
  OpContext ctx = host.ctx;
  EXPECT_EQ(kda_replay(ctx, args).code(), StatusCode::kInvalid);
}

}  // namespace
}  // namespace lathe
