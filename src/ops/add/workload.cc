#include "ops/workload.h"

#include "ops/add/add.h"

namespace lathe {

AnyOp add_workload() {
  std::vector<Case<AddArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16})
    for (auto [rows, width, bench] : {std::tuple{1, 7, false}, {13, 65, false}, {2048, 1024, true}})
      cases.push_back(
          {{.name = fmt::format("rows{}_w{}_{}", rows, width, dtype_name(t)),
            .bytes = int64_t{3} * rows * width * dtype_bytes(t),
            .flop = int64_t{rows} * width,
            .traffic = Traffic::kCopy,
            .tolerance = t == DType::kF32 ? 1e-6 : 5e-3,
            .bench = bench},
           [=, rows = rows, width = width](CaseBuilder& b) {  // clang 14 can't capture bindings by themselves
             return AddArgs{b.rows(rows, width, t), b.rows(rows, width, t), b.empty_rows(rows, width, t)};
           }});
  return any_op(kAdd, std::move(cases), rows_alone<AddArgs>);
}

}  // namespace lathe
