#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/sample/draw.h"
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

}  // namespace

Status sample(OpContext&, const SampleArgs& a) {
  for (int64_t row = 0; row < a.logits.rows; ++row)
    a.token[row] = draw(ranked(a.logits.f32(row), a.vocab), a.settings[row], a.position[row]);
  return Status::ok();
}

}  // namespace lathe::reference
