#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/sample/draw.h"
#include "ops/sample/edit.h"
#include "ops/sample/variants.h"

// Doubles throughout, a full sort: the judge must be plainer and more exact than anything it judges.
namespace lathe::reference {

namespace {

struct Candidate {
  int32_t id;
  double weight;  // the logit, then exp((logit - greatest) / temperature)
};

// Ids by falling logit, ties to the lower id; NaN and -inf are never taken.
std::vector<Candidate> ranked(const float* logits, int vocab) {
  std::vector<Candidate> c;
  for (int32_t id = 0; id < vocab; ++id)
    if (!std::isnan(logits[id]) && logits[id] > -INFINITY) c.push_back({id, logits[id]});
  std::stable_sort(c.begin(), c.end(), [](const Candidate& x, const Candidate& y) { return x.weight > y.weight; });
  return c;
}

int32_t draw(std::vector<Candidate> c, const SampleSettings& s, int32_t position) {
  if (c.empty() || std::isinf(c.back().weight)) return -1;  // the least of what is left: nothing is finite
  if (!(s.temperature > 0) || std::isinf(c[0].weight)) return c[0].id;
  if (s.top_k > 0 && static_cast<size_t>(s.top_k) < c.size()) c.resize(s.top_k);
  const double top = c[0].weight;
  double sum = 0;
  for (Candidate& x : c) sum += x.weight = std::exp((x.weight - top) / s.temperature);
  size_t kept = 0;  // at least one
  double reached = 0;
  while (kept < c.size() && (kept == 0 || reached < double{s.top_p} * sum)) reached += c[kept++].weight;
  while (kept > 1 && c[kept - 1].weight < s.min_p) --kept;
  sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += c[i].weight;
  const double target = uniform_draw(s.seed, position) * sum;
  reached = 0;
  for (size_t i = 0; i < kept; ++i)
    if ((reached += c[i].weight) > target) return c[i].id;
  return c[kept - 1].id;
}

// The logits after edits, what may not be taken as -inf.
std::vector<float> edited_row(const SampleArgs& a, int64_t row, const float* logits) {
  std::vector<float> x(logits, logits + a.vocab);
  if (!a.edit_start.empty())
    for (int32_t i = a.edit_start[row]; i < a.edit_start[row + 1]; ++i)
      x[a.edits[i].token] = edited(x[a.edits[i].token], a.edits[i], a.penalties[row]);
  if (!a.mask.empty() && a.mask[row] >= 0)
    for (int32_t id = 0; id < a.vocab; ++id)
      if (!(a.allowed[a.mask[row] * a.mask_words() + id / 32] >> (id % 32) & 1)) x[id] = -INFINITY;
  return x;
}

void logprobs(const SampleArgs& a, int64_t row, const float* logits) {
  a.logprob[row] = 0, a.rank[row] = 0;
  for (int i = 0; i < a.best_width; ++i)
    a.best_token[row * a.best_width + i] = -1, a.best_logprob[row * a.best_width + i] = 0;
  if (a.best_wanted[row] < 0 || a.token[row] < 0) return;
  const std::vector<Candidate> c = ranked(logits, a.vocab);
  auto logprob = [&](double x) {
    if (std::isinf(c[0].weight)) return x == c[0].weight ? 0.0 : -INFINITY;
    double sum = 0;
    for (const Candidate& other : c) sum += std::exp(other.weight - c[0].weight);
    return x - c[0].weight - std::log(sum);
  };
  const auto taken = std::find_if(c.begin(), c.end(), [&](const Candidate& x) { return x.id == a.token[row]; });
  a.logprob[row] = taken == c.end() ? -INFINITY : static_cast<float>(logprob(taken->weight));
  // What isn't among the ranked counts as -inf, and ranks by its id.
  a.rank[row] = static_cast<int32_t>(taken - c.begin()) + 1;
  if (taken == c.end())
    for (int32_t id = 0; id < a.token[row]; ++id) a.rank[row] += !std::isnan(logits[id]) && logits[id] == -INFINITY;
  for (int i = 0; i < a.best_wanted[row] && i < static_cast<int>(c.size()); ++i)
    a.best_token[row * a.best_width + i] = c[i].id,
                                      a.best_logprob[row * a.best_width + i] = static_cast<float>(logprob(c[i].weight));
}

}  // namespace

Status sample(OpContext&, const SampleArgs& a) {
  for (int64_t row = 0; row < a.rows(); ++row) {
    const float* logits = a.logits.f32(a.logit_row.empty() ? row : a.logit_row[row]);
    a.token[row] = !a.given.empty() && a.given[row] >= 0
                       ? a.given[row]
                       : draw(ranked(edited_row(a, row, logits).data(), a.vocab), a.settings[row], a.position[row]);
    if (!a.best_wanted.empty()) logprobs(a, row, logits);
  }
  return Status::ok();
}

}  // namespace lathe::reference
