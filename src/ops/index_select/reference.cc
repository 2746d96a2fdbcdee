#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/element.h"
#include "ops/index_select/variants.h"

// Doubles throughout: the judge must be more exact than anything it judges.
namespace lathe::reference {

namespace {

using Doubles = std::vector<double>;

// Where the value of channel 0 of pool p lies in `pages`.
int64_t pool_offset(const IndexSelectArgs& a, int64_t sequence, int64_t p) {
  const int64_t per_page = a.page_tokens / a.kpool;
  return a.table[sequence * a.table_stride + p / per_page] * a.pages.item_size + p % per_page * a.dim;
}

// Key and gate of a position: of a new row, or what the open ring kept.
struct Member {
  Doubles key, gate;  // [dim], rounded to the pages' dtype
};

Member fresh_member(const IndexSelectArgs& a, int64_t row) {
  Member m{Doubles(a.dim), Doubles(a.dim)};
  double mean = 0, variance = 0;
  for (int d = 0; d < a.dim; ++d) mean += load(a.key, row, d) / a.dim;
  for (int d = 0; d < a.dim; ++d) variance += (load(a.key, row, d) - mean) * (load(a.key, row, d) - mean) / a.dim;
  for (int d = 0; d < a.dim; ++d) {
    const double normed = (load(a.key, row, d) - mean) / std::sqrt(variance + a.key_norm_eps);
    m.key[d] = rounded(a.key_norm_weight[d] * normed + a.key_norm_bias[d], a.pages.dtype);
    m.gate[d] = rounded(load(a.gate, row, d), a.pages.dtype);
  }
  return m;
}

Member kept_member(const IndexSelectArgs& a, int64_t slot, int64_t position) {
  Member m{Doubles(a.dim), Doubles(a.dim)};
  for (int d = 0; d < a.dim; ++d) {
    m.key[d] = load(a.open, slot, position % a.ring * 2 * a.dim + d);
    m.gate[d] = load(a.open, slot, position % a.ring * 2 * a.dim + a.dim + d);
  }
  return m;
}

void store_pool(const IndexSelectArgs& a, int64_t offset, const std::vector<Member>& members) {
  for (int d = 0; d < a.dim; ++d) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0, key = 0;
    for (int j = 0; j < a.kpool; ++j) top = std::max(top, members[j].gate[d] + a.ape[j * a.dim + d]);
    for (int j = 0; j < a.kpool; ++j) {
      const double alpha = std::exp(members[j].gate[d] + a.ape[j * a.dim + d] - top);
      sum += alpha;
      key += alpha * members[j].key[d];
    }
    store_value(a.pages.data, a.pages.dtype, offset + d, key / sum);
  }
}

// Pools that the sequence's new rows complete; then the ring. In this order: the ring still holds the first pool's
// start.
void write_sequence(const IndexSelectArgs& a, int64_t sequence) {
  const int64_t slot = a.slot[sequence], row0 = a.fresh.start[sequence], begin = a.fresh.past[sequence];
  const int64_t end = begin + a.fresh.start[sequence + 1] - row0;
  for (int64_t p = begin / a.kpool; (p + 1) * a.kpool <= end; ++p) {
    std::vector<Member> members;
    for (int64_t t = p * a.kpool; t < (p + 1) * a.kpool; ++t)
      members.push_back(t < begin ? kept_member(a, slot, t) : fresh_member(a, row0 + t - begin));
    store_pool(a, pool_offset(a, sequence, p), members);
  }
  for (int64_t t = std::max(begin, end - a.ring); t < end; ++t) {
    const Member m = fresh_member(a, row0 + t - begin);
    for (int d = 0; d < a.dim; ++d) {
      store(a.open, slot, t % a.ring * 2 * a.dim + d, m.key[d]);
      store(a.open, slot, t % a.ring * 2 * a.dim + a.dim + d, m.gate[d]);
    }
  }
}

double score(const IndexSelectArgs& a, int64_t sequence, int64_t row, int64_t p) {
  const int64_t key = pool_offset(a, sequence, p);
  double sum = 0;
  for (int h = 0; h < a.heads; ++h) {
    double dot = 0;
    for (int d = 0; d < a.dim; ++d)
      dot += load(a.query, row, h * a.dim + d) * load_value(a.pages.data, a.pages.dtype, key + d);
    sum += load(a.head_weight, row, h) / std::sqrt(a.heads) * std::max(dot / std::sqrt(a.dim), 0.0);
    if (std::isnan(dot)) sum = dot;
  }
  return std::isnan(sum) ? -std::numeric_limits<double>::infinity() : sum;
}

// The chosen pools of a query at position t, ascending.
std::vector<int64_t> chosen_pools(const IndexSelectArgs& a, int64_t sequence, int64_t row, int64_t t) {
  std::vector<int64_t> pools((t + 1) / a.kpool);
  for (size_t p = 0; p < pools.size(); ++p) pools[p] = static_cast<int64_t>(p);
  const size_t budget = a.top_k / a.kpool;
  if (pools.size() <= budget) return pools;
  Doubles scores(pools.size());
  for (int64_t p : pools) scores[p] = score(a, sequence, row, p);
  std::stable_sort(pools.begin(), pools.end(), [&](int64_t x, int64_t y) { return scores[x] > scores[y]; });
  pools.resize(budget);
  std::sort(pools.begin(), pools.end());
  return pools;
}

void select_row(const IndexSelectArgs& a, int64_t sequence, int64_t row, int64_t t) {
  int32_t* out = a.selected.data + row * a.width();
  int count = 0;
  for (int64_t p : chosen_pools(a, sequence, row, t))
    for (int j = 0; j < a.kpool; ++j) out[count++] = static_cast<int32_t>(p * a.kpool + j);
  if (a.tail)
    for (int64_t q = (t + 1) / a.kpool * a.kpool; q <= t; ++q) out[count++] = static_cast<int32_t>(q);
  a.selected_count[row] = count;
}

}  // namespace

Status index_select(OpContext&, const IndexSelectArgs& a) {
  std::fill_n(a.selected.data, a.query.rows * a.width(), -1);
  std::fill_n(a.selected_count.data, a.query.rows, 0);
  for (int64_t i = 0; i < a.slot.count; ++i)
    if (a.slot[i] >= 0) write_sequence(a, i);
  for (int64_t i = 0; i < a.slot.count; ++i)
    for (int64_t row = a.queries.start[i]; row < a.queries.start[i + 1] && a.slot[i] >= 0; ++row)
      select_row(a, i, row, a.queries.past[i] + row - a.queries.start[i]);
  return Status::ok();
}

}  // namespace lathe::reference
