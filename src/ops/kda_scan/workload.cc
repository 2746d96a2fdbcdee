#include "ops/kda_prefill/cases.h"
#include "ops/kda_scan/kda_scan.h"

namespace lathe {

namespace {

Case<KdaScanArgs> scan_case(const KdaShape& s, const std::string& name, std::vector<int32_t> lengths,
                            std::vector<int32_t> past, int padded, int segments, bool bench) {
  int64_t rows = 0;
  for (int32_t n : lengths) rows += n;
  const auto sequences = static_cast<int64_t>(lengths.size());
  // Beside the rows themselves: the maps (A and B, without outputs: 5·K a cell and token), and joining them.
  const int64_t maps = segments > 1 ? int64_t{s.heads} * 5 * s.k * (s.k + s.v) : 0;
  CaseInfo info{.name = fmt::format("{}x{}_{}", name, segments, s.name()),
                .bytes = rows * s.row_bytes() + sequences * s.memory_bytes(),
                .flop = rows * (s.token_flop() + maps) + sequences * segments * s.heads * 2 * s.k * s.k * s.v,
                .traffic = Traffic::kCopy,
                .tolerance = s.dtype == DType::kF32 ? 1e-5 : 5e-3,
                .bench = bench};
  return {info, [=](CaseBuilder& b) {
            std::vector<int32_t> start = {0}, slot;
            for (int64_t i = 0; i < sequences; ++i) {
              start.push_back(start.back() + lengths[i]);
              slot.push_back(i == padded ? -1 : static_cast<int32_t>(sequences - 1 - i));
            }
            KdaScanArgs args{
                .in = kda_rows(b, s, rows), .layer = kda_layer(b, s), .runs = {b.ints(start), b.ints(past)}};
            args.before = b.ints(past), args.slot = b.ints(slot);
            args.memory = kda_memory(b, s, sequences + 1);
            args.segments = segments;
            args.y = b.empty_rows(rows, int64_t{s.heads} * s.v, s.dtype);
            return args;
          }};
}

KdaScanArgs sequences_of(KdaScanArgs a, SequencePart& part) {
  a.runs = part.cut(a.runs);
  a.in = part_of(a.in, part);
  a.before = part.by_sequence(a.before), a.slot = part.by_sequence(a.slot), a.y = part.of(a.y);
  return a;
}

}  // namespace

AnyOp kda_scan_workload() {
  std::vector<Case<KdaScanArgs>> cases;
  for (const KdaShape& s : small_kda_shapes())
    for (int segments : {1, 3})
      cases.push_back(scan_case(s, "ragged", {17, 0, 1, 65, 2, 34}, {0, 4, 3, 7, 0, 131}, 4, segments, false));
  cases.push_back(scan_case(small_kda_shapes()[1], "short", {7, 3}, {0, 9}, -1, 8, false));  // segments of 0 and 1 rows
  cases.push_back(scan_case(bench_kda_shape(KdaGates::kRetain), "tokens2048", {2048}, {0}, -1, 4, true));
  return any_op<KdaScanArgs>(kKdaScan, std::move(cases), nullptr, sequences_of);
}

}  // namespace lathe
