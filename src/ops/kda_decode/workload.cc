#include "ops/kda_decode/kda_decode.h"
#include "ops/kda_prefill/cases.h"

namespace lathe {

namespace {

// Rows 1, 5, 9, ... are padding where `padded`; slots are taken in a stride, from a pool with two to spare.
Case<KdaDecodeArgs> decode_case(const KdaShape& s, int rows, bool padded, bool bench) {
  CaseInfo info{.name = fmt::format("rows{}_{}", rows, s.name()),
                .bytes = rows * (s.row_bytes() + s.memory_bytes()),
                .flop = rows * s.token_flop(),
                .traffic = Traffic::kUpdate,
                .tolerance = s.tolerance(),
                .bench = bench};
  return {info, [=](CaseBuilder& b) {
            const int slots = rows + 2;
            std::vector<int32_t> slot, past;
            for (int r = 0; r < rows; ++r) {
              slot.push_back(padded && r % 4 == 1 ? -1 : slots - 1 - r);
              past.push_back(bench ? 4096 + r : r);  // 0, 1, 2: less history than the convolution is wide
            }
            KdaDecodeArgs args{
                .in = kda_rows(b, s, rows), .layer = kda_layer(b, s), .past = b.ints(past), .slot = b.ints(slot)};
            args.memory = kda_memory(b, s, slots);
            args.y = b.empty_rows(rows, int64_t{s.heads} * s.v, s.dtype);
            return args;
          }};
}

}  // namespace

AnyOp kda_decode_workload() {
  std::vector<Case<KdaDecodeArgs>> cases;
  for (const KdaShape& s : small_kda_shapes()) cases.push_back(decode_case(s, 7, true, false));
  cases.push_back(decode_case(small_kda_shapes()[0], 0, false, false));
  cases.push_back(decode_case(small_kda_shapes()[0], 1, false, false));
  for (int rows : {1, 8, 32}) cases.push_back(decode_case(bench_kda_shape(), rows, false, true));
  cases.push_back(decode_case(bench_kda_shape(KdaGates::kRetain, DType::kF32), 8, false, true));
  return any_op(kKdaDecode, std::move(cases), rows_alone<KdaDecodeArgs>);
}

}  // namespace lathe
