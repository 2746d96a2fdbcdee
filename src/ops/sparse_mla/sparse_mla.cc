#include "ops/sparse_mla/sparse_mla.h"

#include "ops/sparse_mla/variants.h"

namespace lathe {

namespace {

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }

Status check(const SparseMlaArgs& a) {
  if (a.heads < 1 || a.qk < 1 || a.v < 1 || a.latent_dim < 1 || a.page_tokens < 1)
    return invalid("heads ({}), qk ({}), v ({}), latent_dim ({}) and page_tokens ({}) must be positive", a.heads, a.qk,
                   a.v, a.latent_dim, a.page_tokens);
  if (!is_float(a.latent.dtype) || (!a.latent.empty() && a.latent.width != a.latent_dim))
    return invalid("latent must be f32 or bf16, {} wide, not {} {}", a.latent_dim, dtype_name(a.latent.dtype),
                   a.latent.width);
  if (a.latent_norm.count != a.latent_dim)
    return invalid("latent_norm has {} values, not {}", a.latent_norm.count, a.latent_dim);
  if (!is_float(a.query.dtype) || a.query.width != int64_t{a.heads} * a.qk)
    return invalid("query must be f32 or bf16, {} wide, not {} {}", a.heads * a.qk, dtype_name(a.query.dtype),
                   a.query.width);
  if (!is_float(a.out.dtype) || a.out.width != int64_t{a.heads} * a.v || a.out.rows != a.query.rows)
    return invalid("out must be f32 or bf16, [{}, {}], not [{}, {}]", a.query.rows, a.heads * a.v, a.out.rows,
                   a.out.width);
  if (!is_float(a.kv_b.dtype) || a.kv_b.out != int64_t{a.heads} * (a.qk + a.v) || a.kv_b.in != a.latent_dim)
    return invalid("kv_b must be f32 or bf16, [{}, {}], not {} [{}, {}]", a.heads * (a.qk + a.v), a.latent_dim,
                   dtype_name(a.kv_b.dtype), a.kv_b.out, a.kv_b.in);
  const int64_t sequences = a.slot.count;
  for (const Ragged* r : {&a.fresh, &a.queries})
    if (r->past.count != sequences || r->start.count != sequences + 1)
      return invalid("fresh and queries must cover {} sequences, not {}", sequences, r->past.count);
  if (a.table.count < sequences * a.table_stride)
    return invalid("table has {} entries, needs {}", a.table.count, sequences * a.table_stride);
  if (!is_float(a.pages.dtype) || a.pages.item_size != int64_t{a.page_tokens} * a.latent_dim)
    return invalid("pages must be f32 or bf16, {} values each, not {} {}", a.page_tokens * a.latent_dim,
                   dtype_name(a.pages.dtype), a.pages.item_size);
  if (a.selected.count < a.query.rows * a.selected_width || a.selected_count.count < a.query.rows)
    return invalid("selected needs {} entries, selected_count {}", a.query.rows * a.selected_width, a.query.rows);
  return Status::ok();
}

// On the best instructions there are.
Status absorbed(OpContext& ctx, const SparseMlaArgs& args) {
  if (avx512::sparse_mla_applies(args)) return avx512::sparse_mla_absorbed(ctx, args);
  return avx2::sparse_mla_applies(args) ? avx2::sparse_mla_absorbed(ctx, args)
                                        : portable::sparse_mla_absorbed(ctx, args);
}

Status expanded(OpContext& ctx, const SparseMlaArgs& args) {
  if (avx512::sparse_mla_applies(args)) return avx512::sparse_mla_expanded(ctx, args);
  return avx2::sparse_mla_applies(args) ? avx2::sparse_mla_expanded(ctx, args)
                                        : portable::sparse_mla_expanded(ctx, args);
}

// The first three choose the form by the number of dense rows a sequence brings: other sequences change nothing, more
// rows of its own may. `absorbed` and `expanded` depend on a row's set alone.
constexpr Variant<SparseMlaArgs> kVariants[] = {
    {"avx512", avx512::sparse_mla_applies, avx512::sparse_mla, false},
    {"avx2", avx2::sparse_mla_applies, avx2::sparse_mla, false},
    {"portable", portable::sparse_mla_applies, portable::sparse_mla, false},
    {"absorbed", always, absorbed},
    {"expanded", always, expanded},
    {"reference", always, reference::sparse_mla},
#ifdef LATHE_CUDA
    {"cuda", cuda::sparse_mla_applies, cuda::sparse_mla, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<SparseMlaArgs> kSparseMla{"sparse_mla", kVariants, check};

Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args) { return run(ctx, kSparseMla, args); }

}  // namespace lathe
