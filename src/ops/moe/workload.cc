#include "ops/workload.h"

#include <algorithm>

#include "ops/mlp/mlp_cases.h"
#include "ops/moe/moe.h"

namespace lathe {

namespace {

struct Shape {
  int rows, hidden, inner, experts, top_k, groups, top_groups;
  bool shared;
  int first = 0, held = -1;  // held -1: all
  float limit = 10;
};

// How many experts `rows` rows hit on average, if every choice is as likely.
int64_t experts_hit(const Shape& s) {
  return std::lround(s.experts * (1 - std::pow(1 - static_cast<double>(s.top_k) / s.experts, s.rows)));
}

// The weight lists of a case stay alive with its copy of the list.
struct Lists {
  std::vector<MlpWeights> experts, shared;
};

MoeArgs build(CaseBuilder& b, DType x, WeightForm form, const Shape& s, std::vector<std::unique_ptr<Lists>>& kept) {
  auto lists = std::make_unique<Lists>();
  const int held = s.held < 0 ? s.experts : s.held;
  for (int e = 0; e < held; ++e)
    lists->experts.push_back(make_mlp_weights(b, s.hidden, s.inner, s.hidden, form, false));
  if (s.shared) lists->shared.push_back(make_mlp_weights(b, s.hidden, s.inner, s.hidden, form, false));
  MoeArgs args{.x = b.rows(s.rows, s.hidden, x),
               .router = b.weight(s.experts, s.hidden, DType::kF32, 1.5 / std::sqrt(s.hidden)),
               .bias = b.vector(s.experts, 0.02),
               .experts = {lists->experts.data(), held},
               .shared = {lists->shared.data(), s.shared ? 1 : 0},
               .y = b.empty_rows(s.rows, s.hidden, x),
               .chosen = b.empty<int32_t>(int64_t{s.rows} * s.top_k),
               .chosen_weight = b.empty<float>(int64_t{s.rows} * s.top_k),
               .expert_count = s.experts,
               .first_expert = s.first,
               .top_k = s.top_k,
               .groups = s.groups,
               .top_groups = s.top_groups,
               .normalise = true,
               .routed_scale = 2.5f,
               .limit = s.limit};
  kept.push_back(std::move(lists));
  return args;
}

Case<MoeArgs> make_case(const char* name, DType x, WeightForm form, const Shape& s, bool bench) {
  const int64_t experts = experts_hit(s) + s.shared, per_row = s.top_k + s.shared;
  CaseInfo info{.name = fmt::format("{}_x{}_{}_rows{}", name, dtype_name(x), form.name, s.rows),
                .bytes = experts * mlp_weight_bytes(s.hidden, s.inner, s.hidden, form) +
                         int64_t{4} * s.experts * s.hidden + int64_t{2} * s.rows * s.hidden * dtype_bytes(x),
                .flop = int64_t{2} * s.rows * s.hidden * (per_row * 3 * s.inner + s.experts),
                .traffic = Traffic::kRead,
                .precision = product_precision(x, form),
                .tolerance = x == DType::kF32 && !form.w8a8 ? 5e-6 : 5e-3,
                .bench = bench};
  auto kept = std::make_shared<std::vector<std::unique_ptr<Lists>>>();
  return {info, [=](CaseBuilder& b) { return build(b, x, form, s, *kept); }};
}

}  // namespace

AnyOp moe_workload() {
  std::vector<Case<MoeArgs>> cases;
  const std::pair<const char*, Shape> small[] = {{"none", {0, 16, 8, 4, 2, 1, 1, true}},
                                                 {"one", {1, 70, 37, 8, 3, 1, 1, true}},
                                                 {"grouped", {9, 64, 32, 16, 4, 4, 2, true, 0, -1, 0.75f}},
                                                 {"single", {5, 33, 19, 6, 1, 1, 1, false}},
                                                 {"more_groups_than_choices", {11, 32, 24, 8, 1, 4, 3, false}},
                                                 {"part", {7, 48, 40, 12, 5, 1, 1, true, 4, 4}},
                                                 {"rows", {41, 96, 56, 10, 4, 5, 3, true}}};
  for (DType x : {DType::kF32, DType::kBF16})
    for (WeightForm form : {kF32Weights, kBF16Weights, kBlockWeights, kInt8Weights, kFp8Weights})
      for (const auto& [name, shape] : small) cases.push_back(make_case(name, x, form, shape, false));
  for (int rows : {1, 8, 2048})  // a sparse layer of bench/configs/1b.json
    for (auto [x, form] :
         {std::pair{DType::kBF16, kBF16Weights}, {DType::kBF16, kInt8Weights}, {DType::kF32, kBF16Weights}})
      cases.push_back(make_case("experts64", x, form, {rows, 1024, 256, 64, 8, 1, 1, true}, true));
  return any_op(kMoe, std::move(cases), rows_alone<MoeArgs>);
}

}  // namespace lathe
