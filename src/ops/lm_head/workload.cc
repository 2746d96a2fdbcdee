#include "ops/workload.h"

#include "ops/linear/weight_cases.h"
#include "ops/lm_head/lm_head.h"

namespace lathe {

namespace {

Case<LmHeadArgs> make_case(DType x, WeightForm form, int rows, int wanted, int hidden, int vocab, bool bench) {
  return {{.name = fmt::format("vocab{}_x{}_{}_rows{}of{}", vocab, dtype_name(x), form.name, wanted, rows),
           .bytes = weight_bytes(vocab, hidden, form) + int64_t{wanted} * (hidden * dtype_bytes(x) + vocab * 4),
           .flop = int64_t{2} * wanted * hidden * vocab,
           .traffic = Traffic::kRead,
           .precision = product_precision(x, form),
           .tolerance = x == DType::kF32 ? 3e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) {
            std::vector<int32_t> row(wanted);
            for (int& r : row) r = b.below(rows);
            return LmHeadArgs{.hidden = b.rows(rows, hidden, x),
                              .row = b.ints(row),
                              .w = make_weight(b, vocab, hidden, form, 1 / std::sqrt(hidden)),
                              .logits = b.empty_rows(wanted, vocab, DType::kF32)};
          }};
}

}  // namespace

AnyOp lm_head_workload() {
  std::vector<Case<LmHeadArgs>> cases;
  for (DType x : {DType::kF32, DType::kBF16})
    for (WeightForm form : {kF32Weights, kBF16Weights, kBlockWeights, kInt8Weights})
      for (auto [rows, wanted] : {std::pair{4, 0}, {2, 1}, {9, 3}, {17, 16}})
        cases.push_back(make_case(x, form, rows, wanted, 70, 211, false));
  for (int rows : {1, 8})
    for (WeightForm form : {kBF16Weights, kInt8Weights})
      cases.push_back(make_case(DType::kBF16, form, rows + 1, rows, 1024, 32768, true));
  return any_op(kLmHead, std::move(cases), rows_alone<LmHeadArgs>);
}

}  // namespace lathe
