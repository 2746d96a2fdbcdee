#include "ops/kda_prefill/cases.h"
#include "ops/kda_replay/kda_replay.h"

namespace lathe {

namespace {

void fill_rings(CaseBuilder& b, const KdaShape& s, int length, int slots, DType ring, KdaReplayArgs& args) {
  const int64_t records = int64_t{s.heads} * length;
  // Keys are left at size 1 and gates at 0: records of tokens that forgot nothing. Steps after them decay as usual.
  args.ring_key = b.pool(slots, records * s.k, ring, 1 / std::sqrt(static_cast<double>(s.k)));
  args.ring_d = b.pool(slots, records * s.v, ring, 0.5);
  args.ring_gate = b.pool(slots, records * s.k, DType::kF32, 0);
}

struct Step {
  std::string name;
  std::vector<int32_t> rows, cursors;  // of each sequence
  int padded = -1;
  bool flush = false;
};

Case<KdaReplayArgs> replay_case(const KdaShape& s, const Step& step, int length, DType ring, bool bench) {
  const auto sequences = static_cast<int64_t>(step.cursors.size());
  const int64_t record_bytes = int64_t{s.heads} * (s.k + s.v) * dtype_bytes(ring),
                gate_bytes = int64_t{s.heads} * 4 * s.k;
  const int64_t state_bytes = int64_t{s.heads} * 4 * s.k * s.v,
                history_bytes = 2 * (s.width - 1) * s.channels() * dtype_bytes(s.dtype);
  int64_t rows = 0, bytes = 0, flop = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const int n = step.rows[i], cursor = step.cursors[i], base = step.flush ? 0 : replay_base(cursor, n, length);
    rows += n;
    const bool folds = cursor > base;
    bytes += state_bytes * (folds ? 2 : 1) + cursor * record_bytes + gate_bytes;
    if (n) bytes += n * (record_bytes + gate_bytes + s.row_bytes()) + history_bytes;
    // Two products with the state a row, two short ones with each record; a fold adds d·keyᵀ of each record.
    flop +=
        int64_t{s.heads} * (n * (4 * s.k * s.v + 4 * base * (s.k + s.v)) + (folds ? (2 * cursor + 1) * s.k * s.v : 0));
  }
  CaseInfo info{.name = fmt::format("{}_{}{}", step.name, s.name(), ring == s.dtype ? "" : "_ringf32"),
                .bytes = bytes,
                .flop = flop,
                .traffic = Traffic::kRead,
                .tolerance = ring == DType::kF32 ? s.tolerance() : 5e-3,
                .bench = bench};
  return {info, [=](CaseBuilder& b) {
            std::vector<int32_t> start = {0}, past, slot, cursor(sequences + 2, 0);
            for (int64_t i = 0; i < sequences; ++i) {
              start.push_back(start.back() + step.rows[i]);
              slot.push_back(i == step.padded ? -1 : static_cast<int32_t>(sequences - i));
              past.push_back(step.cursors[i] + static_cast<int32_t>(i));  // sequence 0 at cursor 0 is at position 0
              if (slot.back() >= 0) cursor[slot.back()] = step.cursors[i];
            }
            KdaShape shape = s;  // room for this step's rows in the convolution's ring
            if (!step.rows.empty()) shape.ring += *std::max_element(step.rows.begin(), step.rows.end());
            KdaReplayArgs args{
                .in = kda_rows(b, s, rows), .layer = kda_layer(b, s), .runs = {b.ints(start), b.ints(past)}};
            args.slot = b.ints(slot), args.cursor = b.ints(cursor);
            args.memory = kda_memory(b, shape, sequences + 2);
            fill_rings(b, s, length, static_cast<int>(sequences) + 2, ring, args);
            args.length = length, args.flush = step.flush;
            args.y = b.empty_rows(rows, int64_t{s.heads} * s.v, s.dtype);
            return args;
          }};
}

KdaReplayArgs sequences_of(KdaReplayArgs a, SequencePart& part) {
  a.runs = part.cut(a.runs);
  a.in = part_of(a.in, part);
  a.slot = part.by_sequence(a.slot), a.y = part.of(a.y);
  return a;
}

}  // namespace

AnyOp kda_replay_workload() {
  std::vector<Case<KdaReplayArgs>> cases;
  const Step draft{"draft", {1, 3, 1, 2, 0, 4, 1}, {0, 0, 5, 7, 3, 6, 8}, 2};
  const Step flush{"flush", {0, 0, 0}, {0, 5, 8}, -1, true};
  for (const KdaShape& s : small_kda_shapes()) {
    cases.push_back(replay_case(s, draft, 8, s.dtype, false));
    cases.push_back(replay_case(s, flush, 8, s.dtype, false));
  }
  cases.push_back(replay_case(small_kda_shapes()[6], draft, 16, DType::kF32, false));
  // A full cycle at once: each slot one record further, every 16th folds.
  for (int rows : {1, 32}) {
    Step cycle{fmt::format("rows{}", rows), std::vector<int32_t>(rows, 1), {}};
    for (int r = 0; r < rows; ++r) cycle.cursors.push_back(rows == 1 ? 8 : 1 + r % 16);
    cases.push_back(replay_case(bench_kda_shape(), cycle, 16, DType::kBF16, true));
  }
  cases.push_back(replay_case(bench_kda_shape(), {"rows8x4", std::vector<int32_t>(8, 4), {0, 2, 4, 6, 8, 10, 12, 14}},
                              16, DType::kBF16, true));
  return any_op<KdaReplayArgs>(kKdaReplay, std::move(cases), nullptr, sequences_of);
}

}  // namespace lathe
