#include "ops/workload.h"

#include "ops/linear/linear.h"
#include "ops/linear/weight_cases.h"

namespace lathe {

namespace {

struct Shape {
  int rows, in;
  std::vector<int> outs;
  bool bias = false;
};

// Products of one x, as a layer calls them. y has x's dtype, f32 where x is int8.
Case<LinearArgs> make_case(const std::string& name, DType x, WeightForm form, const Shape& s, bool bench) {
  const DType y = x == DType::kI8 ? DType::kF32 : x;
  CaseInfo info{.name = fmt::format("{}_x{}_{}_rows{}", name, dtype_name(x), form.name, s.rows),
                .bytes = int64_t{s.rows} * s.in * dtype_bytes(x),
                .traffic = Traffic::kRead,
                .precision = product_precision(x, form),
                .tolerance = y == DType::kF32 ? 3e-6 : 5e-3,
                .bench = bench};
  for (int out : s.outs) {
    info.bytes += weight_bytes(out, s.in, form) + int64_t{s.rows} * out * dtype_bytes(y);
    info.flop += int64_t{2} * s.rows * out * s.in;
  }
  return {info, [=](CaseBuilder& b) {
            LinearArgs args;
            args.x = b.rows(s.rows, s.in, x);
            for (int out : s.outs)
              args.product[args.products++] = {make_weight(b, out, s.in, form, 1 / std::sqrt(s.in)),
                                               s.bias ? b.vector(out, 1) : Array<const float>{},
                                               b.empty_rows(s.rows, out, y)};
            return args;
          }};
}

constexpr WeightForm kForms[] = {kF32Weights, kBF16Weights, kF16Weights, kBlockWeights, kInt8Weights, kFp8Weights};

}  // namespace

AnyOp linear_workload() {
  std::vector<Case<LinearArgs>> cases;
  // No, one and a few rows, primes, one past a tile; widths below, at and past a vector; an output or two.
  const std::pair<const char*, Shape> small[] = {{"none", {0, 64, {8}}},          {"one", {1, 257, {1, 33}, true}},
                                                 {"few", {5, 128, {48, 16}}},     {"odd", {7, 331, {129}, true}},
                                                 {"tile", {13, 96, {17, 4}}},     {"rows", {67, 520, {150}}},
                                                 {"narrow", {3, 5, {7, 2}, true}}};
  for (DType x : {DType::kF32, DType::kBF16})
    for (WeightForm form : kForms)
      for (const auto& [name, shape] : small) cases.push_back(make_case(name, x, form, shape, false));
  for (WeightForm form : {kInt8Weights, kBF16Weights})
    for (const auto& [name, shape] : small) cases.push_back(make_case(name, DType::kI8, form, shape, false));

  // bench/configs/1b.json: a KDA layer's projections and its output, a sparse layer's, the FP8 release's layout.
  for (int rows : {1, 8, 2048})
    for (auto [x, form] :
         {std::pair{DType::kBF16, kBF16Weights}, {DType::kBF16, kInt8Weights}, {DType::kF32, kBF16Weights}}) {
      cases.push_back(make_case("kda_in", x, form, {rows, 1024, {1024, 1024, 1024, 8, 128, 128}}, true));
      cases.push_back(make_case("kda_out", x, form, {rows, 1024, {1024}}, true));
      cases.push_back(make_case("mla_q_b", x, form, {rows, 384, {2048}}, true));
      cases.push_back(make_case("mla_out", x, form, {rows, 2048, {1024}}, true));
      cases.push_back(make_case("wide", x, form, {rows, 1024, {4096}}, true));
    }
  for (int rows : {1, 2048}) {
    cases.push_back(make_case("wide", DType::kF32, kF32Weights, {rows, 1024, {4096}}, true));
    cases.push_back(make_case("wide", DType::kBF16, kBlockWeights, {rows, 1024, {4096}}, true));
    cases.push_back(make_case("wide", DType::kBF16, kFp8Weights, {rows, 1024, {4096}}, true));
  }
  return any_op(kLinear, std::move(cases), rows_alone<LinearArgs>);
}

}  // namespace lathe
