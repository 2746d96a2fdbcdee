#include <cmath>
#include <limits>
#include <vector>

#include "ops/element.h"
#include "ops/sparse_mla/variants.h"

// Doubles throughout: the judge must be more exact than anything it judges. Expanded form, as the paper has it; but the
// products with kv_b are taken once a row and head (absorbed) where that is exact algebra, or tests would last for
// hours.
namespace lathe::reference {

namespace {

using Doubles = std::vector<double>;

// Where channel 0 of a position's latent lies in `pages`.
int64_t latent_offset(const SparseMlaArgs& a, int64_t sequence, int64_t position) {
  const int64_t page = a.table[sequence * a.table_stride + position / a.page_tokens];
  return page * a.pages.item_size + position % a.page_tokens * a.latent_dim;
}

void write_latent(const SparseMlaArgs& a, int64_t row, int64_t offset) {
  double square = 0;
  for (int l = 0; l < a.latent_dim; ++l) square += load(a.latent, row, l) * load(a.latent, row, l);
  const double r = 1 / std::sqrt(square / a.latent_dim + a.norm_eps);
  for (int l = 0; l < a.latent_dim; ++l)
    store_value(a.pages.data, a.pages.dtype, offset + l,
                a.latent_norm[l] * rounded(load(a.latent, row, l) * r, a.pages.dtype));
}

// q~_h = Wk_hᵀ·q_h·qk^-½, [latent_dim]
Doubles latent_query(const SparseMlaArgs& a, int64_t row, int h) {
  Doubles q(a.latent_dim);
  for (int i = 0; i < a.qk; ++i) {
    const double x = load(a.query, row, h * a.qk + i) / std::sqrt(a.qk);
    for (int l = 0; l < a.latent_dim; ++l) q[l] += x * load(a.kv_b, int64_t{h} * (a.qk + a.v) + i, l);
  }
  return q;
}

// z_h = sum over the row's set of p_j·c_j, [latent_dim]
Doubles attend(const SparseMlaArgs& a, int64_t sequence, int64_t row, const Doubles& q) {
  const int32_t* set = a.selected.data + row * a.selected_width;
  const int count = a.selected_count[row];
  Doubles s(count), z(a.latent_dim);
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  auto c = [&](int j, int l) {
    return load_value(a.pages.data, a.pages.dtype, latent_offset(a, sequence, set[j]) + l);
  };
  for (int j = 0; j < count; ++j) {
    for (int l = 0; l < a.latent_dim; ++l) s[j] += q[l] * c(j, l);
    top = std::max(top, s[j]);
  }
  for (int j = 0; j < count; ++j) sum += s[j] = std::exp(s[j] - top);
  for (int j = 0; j < count; ++j)
    for (int l = 0; l < a.latent_dim; ++l) z[l] += s[j] / sum * c(j, l);
  return z;
}

}  // namespace

Status sparse_mla(OpContext&, const SparseMlaArgs& a) {
  for (int64_t i = 0; i < a.slot.count; ++i)
    for (int64_t row = a.fresh.start[i]; row < a.fresh.start[i + 1] && a.slot[i] >= 0; ++row)
      write_latent(a, row, latent_offset(a, i, a.fresh.past[i] + row - a.fresh.start[i]));
  std::vector<int64_t> sequence_of(a.query.rows, -1);
  for (int64_t i = 0; i < a.slot.count; ++i)
    for (int64_t row = a.queries.start[i]; row < a.queries.start[i + 1] && a.slot[i] >= 0; ++row) sequence_of[row] = i;
  for (int64_t row = 0; row < a.query.rows; ++row)
    for (int h = 0; h < a.heads; ++h) {
      Doubles z(a.latent_dim);
      if (sequence_of[row] >= 0) z = attend(a, sequence_of[row], row, latent_query(a, row, h));
      for (int i = 0; i < a.v; ++i) {
        double o = 0;
        for (int l = 0; l < a.latent_dim; ++l) o += load(a.kv_b, int64_t{h} * (a.qk + a.v) + a.qk + i, l) * z[l];
        store(a.out, row, int64_t{h} * a.v + i, o);
      }
    }
  return Status::ok();
}

}  // namespace lathe::reference
