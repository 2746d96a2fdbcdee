#include "ops/workload.h"

#include "ops/hc_boundary/hc_boundary.h"

namespace lathe {

namespace {

struct Shape {
  int64_t rows, hidden;
  int copies;
  bool has_y = true;
  bool in_place = false;
};

HcBoundaryArgs build(CaseBuilder& b, Shape s, DType rows, DType fn) {
  const int64_t width = s.copies * s.hidden, n = 2 * s.copies + s.copies * s.copies;
  HcBoundaryArgs a;
  a.streams = b.rows(s.rows, width, rows);
  if (s.has_y) {
    a.y = b.rows(s.rows, s.hidden, rows);
    a.post = b.vector(s.rows * s.copies, 0.3, 1);
    a.comb = b.vector(s.rows * s.copies * s.copies, 0.1, 0.25);
  }
  a.fn = b.weight(n, width, fn, 1 / std::sqrt(static_cast<double>(width)));
  a.base = b.vector(n, 0.5);
  a.scale = b.vector(3, 0.2, 1);
  a.norm_weight = b.vector(s.hidden, 0.2, 1);
  a.streams_out = b.empty_rows(s.rows, width, rows);
  a.post_out = b.empty<float>(s.rows * s.copies);
  a.comb_out = b.empty<float>(s.rows * s.copies * s.copies);
  a.u = b.empty_rows(s.rows, s.hidden, rows);
  a.copies = s.copies;
  return a;
}

Case<HcBoundaryArgs> make_case(Shape s, DType rows, DType fn, bool bench) {
  const int64_t e = dtype_bytes(rows), width = s.copies * s.hidden, n = 2 * s.copies + s.copies * s.copies;
  // streams in and out, y, u, post and comb both ways, fn once.
  const int64_t bytes =
      s.rows * (2 * width * e + 2 * s.hidden * e + 8 * (s.copies + s.copies * s.copies)) + n * width * dtype_bytes(fn);
  // the mapping, its norm, post and pre
  const int64_t flop = s.rows * width * (2 * n + 2 + 2 * (s.copies + 1) + 2);
  return {{.name = fmt::format("rows{}_h{}_s{}{}_{}", s.rows, s.hidden, s.copies, s.has_y ? "" : "_first",
                               dtype_name(rows)),
           .bytes = bytes,
           .flop = flop,
           .traffic = Traffic::kCopy,
           .precision = Precision::kFp32,
           .tolerance = rows == DType::kF32 ? 3e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) { return build(b, s, rows, fn); }};
}

// post and comb belong to rows, too.
HcBoundaryArgs part_of(HcBoundaryArgs args, int64_t begin, int64_t count) {
  const int64_t post = args.copies, comb = int64_t{args.copies} * args.copies;
  args = rows_alone(args, begin, count);
  if (!args.post.empty()) args.post = {args.post.data + begin * post, count * post};
  if (!args.comb.empty()) args.comb = {args.comb.data + begin * comb, count * comb};
  return args;
}

}  // namespace

AnyOp hc_boundary_workload() {
  std::vector<Case<HcBoundaryArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16}) {
    for (Shape s : {Shape{0, 16, 4}, {1, 64, 4}, {5, 37, 4, false}, {17, 300, 4}, {33, 65, 3}, {7, 24, 2}, {3, 40, 5}})
      cases.push_back(make_case(s, t, t == DType::kF32 ? DType::kF32 : DType::kBF16, false));
    cases.push_back(make_case({19, 128, 4}, t, DType::kF32, false));
  }
  for (int64_t rows : {1, 8, 32, 2048}) cases.push_back(make_case({rows, 1024, 4}, DType::kBF16, DType::kF32, true));
  cases.push_back(make_case({64, 4096, 4}, DType::kBF16, DType::kF32, true));
  return any_op(kHcBoundary, std::move(cases), part_of);
}

}  // namespace lathe
