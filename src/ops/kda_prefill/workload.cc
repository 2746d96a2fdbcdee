#include "ops/kda_prefill/cases.h"
#include "ops/kda_prefill/kda_prefill.h"

namespace lathe {

namespace {

struct Pack {
  std::string name;
  std::vector<int32_t> lengths, past;  // of each sequence
  int padded = -1;                     // this one has slot -1
  std::vector<int32_t> checkpoints;    // batch rows
};

Case<KdaPrefillArgs> prefill_case(const KdaShape& s, const Pack& pack, bool bench) {
  int64_t rows = 0;
  for (int32_t n : pack.lengths) rows += n;
  const auto sequences = static_cast<int64_t>(pack.lengths.size());
  CaseInfo info{.name = fmt::format("{}_{}", pack.name, s.name()),
                .bytes = rows * s.row_bytes() + sequences * s.memory_bytes(),
                .flop = rows * s.token_flop(),
                .traffic = Traffic::kCopy,
                .tolerance = s.tolerance(),
                .bench = bench};
  return {info, [=](CaseBuilder& b) {
            std::vector<int32_t> start = {0}, slot, to;
            for (int64_t i = 0; i < sequences; ++i) {
              start.push_back(start.back() + pack.lengths[i]);
              slot.push_back(i == pack.padded ? -1 : static_cast<int32_t>(sequences - 1 - i));
            }
            for (size_t j = 0; j < pack.checkpoints.size(); ++j) to.push_back(static_cast<int32_t>(sequences + j));
            KdaPrefillArgs args{
                .in = kda_rows(b, s, rows), .layer = kda_layer(b, s), .runs = {b.ints(start), b.ints(pack.past)}};
            args.slot = b.ints(slot);
            args.memory = kda_memory(b, s, sequences + static_cast<int64_t>(to.size()) + 1);
            args.checkpoint_row = b.ints(pack.checkpoints), args.checkpoint_slot = b.ints(to);
            args.y = b.empty_rows(rows, int64_t{s.heads} * s.v, s.dtype);
            return args;
          }};
}

KdaPrefillArgs sequences_of(KdaPrefillArgs a, SequencePart& part) {
  a.runs = part.cut(a.runs);
  a.in = part_of(a.in, part);
  a.slot = part.by_sequence(a.slot), a.y = part.of(a.y);
  std::vector<int32_t> row, slot;
  for (int64_t j = 0; j < a.checkpoint_row.count; ++j) {
    const auto at = static_cast<int32_t>(a.checkpoint_row[j] - part.first_row());
    if (at >= 0 && at < part.rows()) row.push_back(at), slot.push_back(a.checkpoint_slot[j]);
  }
  a.checkpoint_row = part.keep(std::move(row)), a.checkpoint_slot = part.keep(std::move(slot));
  return a;
}

}  // namespace

AnyOp kda_prefill_workload() {
  std::vector<Case<KdaPrefillArgs>> cases;
  const Pack ragged{"ragged", {17, 0, 1, 65, 3, 16, 2}, {0, 5, 1, 7, 0, 2, 131}, 4, {16, 33, 81}};
  for (const KdaShape& s : small_kda_shapes()) cases.push_back(prefill_case(s, ragged, false));
  cases.push_back(prefill_case(small_kda_shapes()[0], {"none", {}, {}, -1, {}}, false));
  cases.push_back(prefill_case(small_kda_shapes()[1], {"one", {255}, {0}, -1, {}}, false));
  cases.push_back(prefill_case(small_kda_shapes()[5], {"one", {130}, {64}, -1, {}}, false));
  for (KdaGates gates : {KdaGates::kForget, KdaGates::kRetain}) {
    const KdaShape s = bench_kda_shape(gates);
    cases.push_back(prefill_case(s, {"tokens2048", {2048}, {0}, -1, {}}, true));
    cases.push_back(
        prefill_case(s, {"20x410", std::vector<int32_t>(20, 410), std::vector<int32_t>(20, 0), -1, {}}, true));
  }
  KdaShape one_head = bench_kda_shape(KdaGates::kRetain, DType::kF32);
  one_head.heads = 1;
  cases.push_back(prefill_case(one_head, {"tokens2048", {2048}, {4096}, -1, {}}, true));
  return any_op<KdaPrefillArgs>(kKdaPrefill, std::move(cases), nullptr, sequences_of);
}

}  // namespace lathe
