#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/element.h"
#include "ops/linear/oracle.h"
#include "ops/mlp/oracle.h"
#include "ops/moe/variants.h"

namespace lathe::reference {

namespace {

struct Choice {
  int expert;
  double weight;
};

// A NaN counts below -inf; of equals the lower id comes first.
bool better(const std::vector<float>& value, int a, int b) {
  if (std::isnan(value[a]) || std::isnan(value[b]))
    return std::isnan(value[a]) == std::isnan(value[b]) ? a < b : std::isnan(value[b]);
  return value[a] != value[b] ? value[a] > value[b] : a < b;
}

std::vector<int> largest(const std::vector<float>& value, int count) {
  std::vector<int> ids(value.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int a, int b) { return better(value, a, b); });
  ids.resize(count);
  return ids;
}

// The groups that aren't kept lose their scores.
std::vector<float> within_groups(const MoeArgs& args, std::vector<float> score) {
  const int size = args.expert_count / args.groups;
  std::vector<float> group(args.groups);
  for (int g = 0; g < args.groups; ++g) {
    const std::vector<float> members(score.begin() + g * size, score.begin() + (g + 1) * size);
    for (int e : largest(members, std::min(2, size))) group[g] += members[e];
  }
  const std::vector<int> kept = largest(group, args.top_groups);
  for (int e = 0; e < args.expert_count; ++e)
    if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) score[e] = -std::numeric_limits<float>::infinity();
  return score;
}

// Ties are decided on fp32 values, so each step rounds to fp32.
std::vector<Choice> route(const MoeArgs& args, int64_t row) {
  const std::vector<double> logits = product(met_by(args.router, args.x, row), args.router, {});
  std::vector<float> s(args.expert_count), c(args.expert_count);
  for (int e = 0; e < args.expert_count; ++e) {
    s[e] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(static_cast<float>(logits[e])))));
    c[e] = s[e] + args.bias[e];
  }
  if (args.groups > 1) c = within_groups(args, c);
  std::vector<int> chosen = largest(c, args.top_k);
  std::sort(chosen.begin(), chosen.end());
  double sum = 0;
  for (int e : chosen) sum += s[e];
  std::vector<Choice> choices;
  for (int e : chosen) choices.push_back({e, s[e] / (args.normalise ? sum + 1e-20 : 1.0) * args.routed_scale});
  return choices;
}

}  // namespace

Status moe(OpContext& ctx, const MoeArgs& args) {
  std::vector<float> routed(args.x.rows * args.y.width);
  std::vector<double> sum(args.y.width);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    std::fill(sum.begin(), sum.end(), 0);
    const std::vector<Choice> choices = route(args, r);
    for (int j = 0; j < args.top_k; ++j) {
      const auto [expert, weight] = choices[j];
      if (!args.chosen.empty()) args.chosen[r * args.top_k + j] = expert;
      if (!args.chosen_weight.empty()) args.chosen_weight[r * args.top_k + j] = static_cast<float>(weight);
      const int mine = expert - args.first_expert;
      if (mine < 0 || mine >= args.experts.count) continue;
      const std::vector<double> y = mlp_row(args.x, r, args.experts[mine], args.limit);
      for (int64_t o = 0; o < args.y.width; ++o) sum[o] += weight * y[o];
    }
    for (int64_t o = 0; o < args.y.width; ++o) routed[r * args.y.width + o] = static_cast<float>(sum[o]);
  }
  if (ctx.comm && args.experts.count < args.expert_count)
    ctx.comm->all_reduce_sum(routed.data(), args.x.rows * args.y.width);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    std::vector<double> shared(args.y.width);
    if (args.shared.count) shared = mlp_row(args.x, r, args.shared[0], args.limit);
    for (int64_t o = 0; o < args.y.width; ++o) store(args.y, r, o, routed[r * args.y.width + o] + shared[o]);
  }
  return Status::ok();
}

}  // namespace lathe::reference
