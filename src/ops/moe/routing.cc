#include "ops/moe/routing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lathe {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Integers in the order of the numbers, a NaN below all.
int32_t rank_of(float v) {
  if (std::isnan(v)) return std::numeric_limits<int32_t>::min();
  const int32_t bits = std::bit_cast<int32_t>(v + 0.0f);  // -0 and 0 are one number
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// The `count` largest of value[0..n), by falling rank, ties to the lower id, into ids.
void largest(const float* value, int n, int count, int32_t* ids) {
  int held = 0;
  for (int i = 0; i < n; ++i) {
    const int32_t rank = rank_of(value[i]);
    if (held == count && rank <= rank_of(value[ids[held - 1]])) continue;
    int at = held < count ? held++ : held - 1;
    for (; at > 0 && rank > rank_of(value[ids[at - 1]]); --at) ids[at] = ids[at - 1];
    ids[at] = i;
  }
}

// The groups that aren't kept lose their scores. `group`: scratch, [groups].
void keep_groups(const MoeArgs& args, float* score, float* group) {
  const int size = args.expert_count / args.groups;
  for (int g = 0; g < args.groups; ++g) {
    int32_t top[2];
    largest(score + g * size, size, std::min(2, size), top);
    group[g] = score[g * size + top[0]] + (size > 1 ? score[g * size + top[1]] : 0);
  }
  for (int g = 0; g < args.groups; ++g) {
    int better = 0;  // groups that come before g: of a greater score, or of an equal one and a lower id
    for (int h = 0; h < args.groups; ++h)
      better += rank_of(group[h]) > rank_of(group[g]) || (rank_of(group[h]) == rank_of(group[g]) && h < g);
    if (better >= args.top_groups) std::fill_n(score + g * size, size, kNone);
  }
}

}  // namespace

void choose_experts(const MoeArgs& args, const float* logits, float* values, int32_t* expert, float* weight) {
  float *s = values, *c = s + args.expert_count, *group = c + args.expert_count;
  for (int e = 0; e < args.expert_count; ++e) {
    s[e] = 1 / (1 + std::exp(-logits[e]));
    c[e] = s[e] + args.bias[e];
  }
  if (args.groups > 1) keep_groups(args, c, group);
  largest(c, args.expert_count, args.top_k, expert);
  std::sort(expert, expert + args.top_k);
  float sum = 0;
  for (int j = 0; j < args.top_k; ++j) sum += s[expert[j]];
  for (int j = 0; j < args.top_k; ++j)
    weight[j] = (args.normalise ? s[expert[j]] / (sum + 1e-20f) : s[expert[j]]) * args.routed_scale;
}

void sort_by_expert(const MoeArgs& args, int64_t rows, const int32_t* expert, const float* weight, RowsByExpert& to) {
  to.experts = args.experts.count;
  std::fill_n(to.begin, to.experts + 1, 0);
  const auto mine = [&](int64_t share) { return int64_t{expert[share]} - args.first_expert; };
  const auto is_mine = [&](int64_t share) { return mine(share) >= 0 && mine(share) < to.experts; };
  for (int64_t i = 0; i < rows * args.top_k; ++i)
    if (is_mine(i)) ++to.begin[mine(i) + 1];
  for (int64_t e = 0; e < to.experts; ++e) to.begin[e + 1] += to.begin[e];
  for (int64_t i = 0; i < rows * args.top_k; ++i) {  // begin[e] moves on to begin[e + 1]
    if (!is_mine(i)) continue;
    const int64_t at = to.begin[mine(i)]++;
    to.row[at] = static_cast<int32_t>(i / args.top_k);
    to.weight[at] = weight[i];
  }
  for (int64_t e = to.experts; e > 0; --e) to.begin[e] = to.begin[e - 1];
  to.begin[0] = 0;
}

}  // namespace lathe
