#include "ops/workload.h"

#include "ops/norm/norm.h"

namespace lathe {

namespace {

struct Shape {
  const char* tag;
  NormKind kind;
  bool gelu;
  int rows, width;
  bool bench;
};

Case<NormArgs> norm_case(const Shape& s, DType in, DType out) {
  const bool layer = s.kind == NormKind::kLayer;
  CaseInfo info{
      .name = fmt::format("{}_rows{}_w{}_{}", s.tag, s.rows, s.width, dtype_name(in)),
      .bytes = int64_t{s.rows} * s.width * (dtype_bytes(in) + dtype_bytes(out)) + int64_t{s.width} * (layer ? 8 : 4),
      .flop = int64_t{s.rows} * s.width * (layer ? 7 : 4),
      .traffic = Traffic::kCopy,
      .tolerance = out == DType::kF32 ? 1e-6 : 5e-3,
      .bench = s.bench};
  if (in != out) info.name += fmt::format("_{}", dtype_name(out));
  return {info, [=](CaseBuilder& b) {
            NormArgs args{.kind = s.kind,
                          .x = b.rows(s.rows, s.width, in, 1.5, layer ? 0.4 : 0),
                          .weight = b.vector(s.width, 0.2, 1)};
            if (layer) args.bias = b.vector(s.width, 0.3);
            args.y = b.empty_rows(s.rows, s.width, out);
            args.gelu = s.gelu;
            return args;
          }};
}

}  // namespace

AnyOp norm_workload() {
  std::vector<Case<NormArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16})
    for (const Shape& s : {Shape{"rms", NormKind::kRms, false, 1, 7, false},
                           {"rms", NormKind::kRms, false, 13, 65, false},
                           {"layer", NormKind::kLayer, false, 5, 33, false},
                           {"layer_gelu", NormKind::kLayer, true, 3, 129, false},
                           {"rms", NormKind::kRms, false, 1, 1024, true},
                           {"rms", NormKind::kRms, false, 2048, 1024, true},
                           {"layer_gelu", NormKind::kLayer, true, 512, 4096, true}})
      cases.push_back(norm_case(s, t, t));
  cases.push_back(norm_case({"rms", NormKind::kRms, false, 4, 47, false}, DType::kF32, DType::kBF16));
  cases.push_back(norm_case({"rms", NormKind::kRms, false, 4, 47, false}, DType::kBF16, DType::kF32));
  return any_op(kNorm, std::move(cases), rows_alone<NormArgs>);
}

}  // namespace lathe
