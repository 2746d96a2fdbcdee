#include "ops/workload.h"

#include "ops/hc_head/hc_head.h"

namespace lathe {

namespace {

Case<HcHeadArgs> make_case(int64_t rows, int64_t hidden, int copies, DType t, bool bench) {
  const int64_t width = copies * hidden;
  return {{.name = fmt::format("rows{}_h{}_s{}_{}", rows, hidden, copies, dtype_name(t)),
           .bytes = rows * (2 * width + 2 * hidden) * dtype_bytes(t) + rows * 4 * (copies + copies * copies),
           .flop = rows * width * (2 * (copies + 1) + 1),
           .traffic = Traffic::kCopy,
           .precision = Precision::kFp32,
           .tolerance = t == DType::kF32 ? 3e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) {
            HcHeadArgs a;
            a.streams = b.rows(rows, width, t);
            a.y = b.rows(rows, hidden, t);
            a.post = b.vector(rows * copies, 0.3, 1);
            a.comb = b.vector(rows * copies * copies, 0.1, 0.25);
            a.norm_weight = b.vector(hidden, 0.2, 1);
            a.streams_out = b.empty_rows(rows, width, t);
            a.h = b.empty_rows(rows, hidden, t);
            a.copies = copies;
            return a;
          }};
}

// post and comb belong to rows, too.
HcHeadArgs part_of(HcHeadArgs args, int64_t begin, int64_t count) {
  const int64_t post = args.copies, comb = int64_t{args.copies} * args.copies;
  args = rows_alone(args, begin, count);
  if (!args.post.empty()) args.post = {args.post.data + begin * post, count * post};
  if (!args.comb.empty()) args.comb = {args.comb.data + begin * comb, count * comb};
  return args;
}

}  // namespace

AnyOp hc_head_workload() {
  std::vector<Case<HcHeadArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16})
    for (auto [rows, hidden, copies] :
         {std::tuple{0, 16, 4}, {1, 64, 4}, {5, 37, 4}, {17, 300, 4}, {33, 65, 3}, {7, 24, 2}, {3, 40, 1}})
      cases.push_back(make_case(rows, hidden, copies, t, false));
  for (int64_t rows : {1, 32, 2048}) cases.push_back(make_case(rows, 1024, 4, DType::kBF16, true));
  return any_op(kHcHead, std::move(cases), part_of);
}

}  // namespace lathe
