#include <cstring>

#include "ops/kda_host.h"

namespace lathe {
namespace {

using namespace testing;

std::vector<KdaTestSizes> shapes() {
  return {{.heads = 2, .k = 16, .v = 24},
          {.heads = 1, .k = 19, .v = 7, .width = 2, .ring = 1},
          {.heads = 1, .k = 33, .v = 40, .width = 5, .bound = 0, .ring = 9},
          {.heads = 1, .k = 40, .v = 9, .width = 5, .ring = 4}};
}

TEST(KdaScan, SegmentsEqualUncut) {
  Host host(1);
  for (const KdaTestSizes& sizes : shapes())
    for (bool retain : {false, true}) {
      KdaSequence sequence(host, sizes, 75, 3, retain);
      const KdaOutcome oracle = sequence.prefilled(host.with("kda_prefill=reference"));
      for (int segments : {1, 2, 3, 16, 75, 200}) {
        const KdaOutcome scanned = sequence.scanned(host.with("kda_scan=increment"), segments);
        EXPECT_LE(rms_ratio(scanned.y, oracle.y), 3e-6) << sizes.k << " x" << segments;
        EXPECT_LE(rms_ratio(scanned.state, oracle.state), 3e-6) << sizes.k << " x" << segments;
      }
    }
}

struct RankOutcome {
  std::vector<float> y, slot;
};

// Ranks in threads, each with memory of its own that stands at `before`; rank r holds rows [cuts[r], cuts[r + 1]).
std::vector<RankOutcome> run_on_ranks(KdaTestSizes sizes, const std::string& variant, int64_t before,
                                      const std::vector<int64_t>& cuts, bool drop_state = false) {
  const int ranks = static_cast<int>(cuts.size()) - 1;
  std::vector<RankOutcome> outcomes(ranks);
  const Status status = run_ranks(ranks, [&](Communicator& comm) {
    Host host(1);
    KdaSequence sequence(host, sizes, cuts.back());
    const KdaMemory m = sequence.memory();
    const Rows y = sequence.fresh_y(cuts.back());
    if (before > 0) sequence.prefill(host.ctx, m, 0, before, y);
    if (before > 0 && drop_state) std::memset(m.state.at(1), 0, m.state.item_bytes());
    OpContext ctx = host.with("kda_scan=" + variant);
    ctx.comm = &comm;
    const int64_t begin = cuts[comm.rank()], end = cuts[comm.rank() + 1];
    sequence.scan(ctx, m, begin, end, before, 1, y);
    outcomes[comm.rank()] = {Host::values(y.slice(begin, end - begin)), sequence.slot_contents(m, 1)};
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
  return outcomes;
}

// Segments shorter than the convolution is wide, empty ones, and a beginning in the middle of a sequence.
TEST(KdaScan, RanksEqualUncut) {
  for (KdaTestSizes sizes : shapes())
    for (int64_t before : {0, 9})
      for (std::vector<int64_t> cuts : {std::vector<int64_t>{0, 30},
                                        {0, 20, 40},
                                        {0, 1, 2, 3, 30},
                                        {0, 0, 0, 25},
                                        {0, 25, 25, 26, 26},
                                        {0, 2, 2, 4, 5, 21, 22}}) {
        for (int64_t& c : cuts) c += before;
        Host host(1);
        KdaSequence sequence(host, sizes, cuts.back());
        const KdaMemory m = sequence.memory();
        const Rows y = sequence.fresh_y(cuts.back());
        if (before > 0) sequence.prefill(host.with("kda_prefill=reference"), m, 0, before, y);
        sequence.prefill(host.with("kda_prefill=reference"), m, before, cuts.back(), y);
        const std::vector<float> slot = sequence.slot_contents(m, 1),
                                 oracle = Host::values(y.slice(before, cuts.back() - before));
        for (const std::string variant : {"increment", "reference"}) {
          const auto ranks = run_on_ranks(sizes, variant, before, cuts);
          std::vector<float> joined;
          for (const RankOutcome& r : ranks) {
            joined.insert(joined.end(), r.y.begin(), r.y.end());
            EXPECT_LE(rms_ratio(r.slot, slot), 3e-6) << variant << " k " << sizes.k << " ranks " << ranks.size();
            EXPECT_EQ(r.slot, ranks[0].slot) << variant;  // every rank holds the same bits
          }
          EXPECT_LE(rms_ratio(joined, oracle), 3e-6)
              << variant << " k " << sizes.k << " ranks " << ranks.size() << " before " << before;
        }
      }
}

TEST(KdaScan, DroppingTheStateBeforeShows) {
  const KdaTestSizes sizes{.heads = 2, .k = 16, .v = 24};
  const auto whole = run_on_ranks(sizes, "increment", 20, {20, 24, 28}),
             dropped = run_on_ranks(sizes, "increment", 20, {20, 24, 28}, true);
  for (int rank : {0, 1}) EXPECT_GT(rms_ratio(dropped[rank].y, whole[rank].y), 1e-2) << rank;
}

// What a later segment is given from before it counts: its convolution's history as well as its state.
TEST(KdaScan, LaterSegmentsSeeEarlierOnes) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 2, .k = 16, .v = 24}, 40);
  const std::vector<float> whole = sequence.scanned(host.ctx, 2).y;
  const KdaMemory m = sequence.memory();
  const Rows y = sequence.fresh_y(40);
  sequence.scan(host.ctx, m, 0, 20, 0, 1, y);
  std::memset(m.conv.at(1), 0, m.conv.item_bytes());
  sequence.scan(host.ctx, m, 20, 40, 20, 1, y);
  EXPECT_GT(rms_ratio(Host::values(y), whole), 1e-2);
}

TEST(KdaScan, ManySequencesAtOnceOnRanks) {
  const KdaTestSizes sizes{.heads = 2, .k = 16, .v = 24};
  const std::vector<std::vector<int32_t>> rank_rows = {{5, 0, 2, 0}, {1, 0, 7, 0}, {4, 0, 0, 3}};  // [rank][sequence]
  Host host(1);
  KdaSequence sequence(host, sizes, 22);
  std::vector<std::vector<float>> slots(3);
  std::vector<std::vector<float>> slot_of_sequence(4);
  {
    const KdaMemory m = sequence.memory(4);
    const Rows y = sequence.fresh_y(22);
    sequence.prefill(host.ctx, m, 0, 10, y, 3), sequence.prefill(host.ctx, m, 0, 9, y, 1),
        sequence.prefill(host.ctx, m, 0, 3, y, 2);
    slot_of_sequence = {sequence.slot_contents(m, 3), {}, sequence.slot_contents(m, 1), sequence.slot_contents(m, 2)};
  }
  const Status status = run_ranks(3, [&](Communicator& comm) {
    Host mine(1);
    KdaSequence all(mine, sizes, 22);
    const auto& rows = rank_rows[comm.rank()];
    std::vector<int32_t> start = {0}, past;
    std::vector<int64_t> take;  // rows of the whole that this rank's batch consists of: every sequence reads from row 0
    for (int s = 0; s < 4; ++s) {
      int32_t before = 0;
      for (int r = 0; r < comm.rank(); ++r) before += rank_rows[r][s];
      past.push_back(before);
      start.push_back(start.back() + rows[s]);
      for (int n = 0; n < rows[s]; ++n) take.push_back(before + n);
    }
    const auto gather = [&](const Rows& from) {
      const Rows to = mine.empty(static_cast<int64_t>(take.size()), from.width, from.dtype);
      for (size_t i = 0; i < take.size(); ++i)
        std::memcpy(to.at(static_cast<int64_t>(i)), from.at(take[i]), from.width * 4);
      return to;
    };
    const KdaMemory m = all.memory(4);
    KdaScanArgs args{.in = {gather(all.in.qkv), gather(all.in.forget), gather(all.in.beta), gather(all.in.gate)},
                     .layer = all.layer,
                     .runs = {mine.ints(start), mine.ints(past)},
                     .before = mine.ints({0, 0, 0, 0}),
                     .slot = mine.ints({3, -1, 1, 2}),
                     .memory = m,
                     .y = all.fresh_y(static_cast<int64_t>(take.size()))};
    OpContext ctx = mine.ctx;
    ctx.comm = &comm;
    LATHE_RETURN_IF_ERROR(kda_scan(ctx, args));
    for (int s : {0, 2, 3})
      EXPECT_LE(rms_ratio(all.slot_contents(m, args.slot[s]), slot_of_sequence[s]), 3e-6)
          << "rank " << comm.rank() << " sequence " << s;
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(KdaScan, Tf32FormsRefuseRowsThatDemandMore) {
  Host host(1);
  KdaSequence sequence(host, {.heads = 1, .k = 16, .v = 16}, 4);
  const KdaMemory m = sequence.memory();
  OpContext ctx = host.with("kda_scan=increment_tf32");
  KdaScanArgs args{.in = sequence.in,
                   .layer = sequence.layer,
                   .runs = {host.ints({0, 4}), host.ints({0})},
                   .before = host.ints({0}),
                   .slot = host.ints({1}),
                   .memory = m,
                   .segments = 2,
                   .y = sequence.fresh_y(4)};
  EXPECT_EQ(kda_scan(ctx, args).code(), StatusCode::kInvalid);
}

}  // namespace
}  // namespace lathe
