#include "ops/workload.h"

#include "ops/linear/weight_cases.h"
#include "ops/mlp/mlp.h"
#include "ops/mlp/mlp_cases.h"

namespace lathe {

MlpWeights make_mlp_weights(CaseBuilder& b, int64_t hidden, int64_t inner, int64_t out, WeightForm form, bool bias) {
  const double spread = 1 / std::sqrt(hidden);
  MlpWeights w{.gate = make_weight(b, inner, hidden, form, spread),
               .up = make_weight(b, inner, hidden, form, spread),
               .down = make_weight(b, out, inner, form, 1 / std::sqrt(inner))};
  if (bias) w.gate_bias = b.vector(inner, 1), w.up_bias = b.vector(inner, 1), w.down_bias = b.vector(out, 1);
  return w;
}

int64_t mlp_weight_bytes(int64_t hidden, int64_t inner, int64_t out, WeightForm form) {
  return 2 * weight_bytes(inner, hidden, form) + weight_bytes(out, inner, form);
}

namespace {

struct Shape {
  int rows, hidden, inner, out;
  bool bias;
  float limit;
};

Case<MlpArgs> make_case(const char* name, DType x, WeightForm form, const Shape& s, bool bench) {
  return {{.name = fmt::format("{}_x{}_{}_rows{}", name, dtype_name(x), form.name, s.rows),
           .bytes =
               mlp_weight_bytes(s.hidden, s.inner, s.out, form) + int64_t{s.rows} * (s.hidden + s.out) * dtype_bytes(x),
           .flop = int64_t{2} * s.rows * s.inner * (2 * s.hidden + s.out),
           .traffic = Traffic::kRead,
           .precision = product_precision(x, form),
           .tolerance = x == DType::kF32 && !form.w8a8 ? 5e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) {
            return MlpArgs{.x = b.rows(s.rows, s.hidden, x),
                           .w = make_mlp_weights(b, s.hidden, s.inner, s.out, form, s.bias),
                           .y = b.empty_rows(s.rows, s.out, x),
                           .limit = s.limit};
          }};
}

}  // namespace

AnyOp mlp_workload() {
  std::vector<Case<MlpArgs>> cases;
  const std::pair<const char*, Shape> small[] = {{"none", {0, 16, 8, 16, false, 10}},
                                                 {"one", {1, 96, 200, 96, false, 0.75f}},
                                                 {"odd", {7, 77, 131, 65, true, 0}},
                                                 {"rows", {35, 128, 160, 130, false, 1}}};
  for (DType x : {DType::kF32, DType::kBF16})
    for (WeightForm form : {kF32Weights, kBF16Weights, kF16Weights, kBlockWeights, kInt8Weights, kFp8Weights})
      for (const auto& [name, shape] : small)
        if (form.dtype != DType::kF16 || shape.rows == 7) cases.push_back(make_case(name, x, form, shape, false));
  for (int rows : {1, 8, 2048})  // the dense layer of bench/configs/1b.json
    for (auto [x, form] :
         {std::pair{DType::kBF16, kBF16Weights}, {DType::kBF16, kInt8Weights}, {DType::kF32, kBF16Weights}})
      cases.push_back(make_case("dense", x, form, {rows, 1024, 4096, 1024, false, 10}, true));
  return any_op(kMlp, std::move(cases), rows_alone<MlpArgs>);
}

}  // namespace lathe
