#include "ops/index_select/index_select.h"

#include "ops/index_select/variants.h"

namespace lathe {

namespace {

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }

Status check_rows(const IndexSelectArgs& a) {
  const int64_t hd = int64_t{a.heads} * a.dim;
  for (const Rows* r : {&a.key, &a.gate})
    if (r->width != a.dim || r->rows != a.key.rows || !is_float(r->dtype))
      return invalid("key and gate must be f32 or bf16, [{}, {}]; one is {} [{}, {}]", a.key.rows, a.dim,
                     dtype_name(r->dtype), r->rows, r->width);
  if (a.query.width != hd || !is_float(a.query.dtype))
    return invalid("query must be f32 or bf16, {} wide, not {} {}", hd, dtype_name(a.query.dtype), a.query.width);
  if (a.head_weight.rows != a.query.rows || a.head_weight.width != a.heads || !is_float(a.head_weight.dtype))
    return invalid("head_weight must be f32 or bf16, [{}, {}]", a.query.rows, a.heads);
  if (a.key_norm_weight.count != a.dim || a.key_norm_bias.count != a.dim || a.ape.count != int64_t{a.kpool} * a.dim)
    return invalid("key_norm_weight, key_norm_bias and ape need {}, {} and {} values", a.dim, a.dim, a.kpool * a.dim);
  return Status::ok();
}

Status check(const IndexSelectArgs& a) {
  if (a.heads < 1 || a.dim < 1 || a.kpool < 1)
    return invalid("heads ({}), dim ({}) and kpool ({}) must be positive", a.heads, a.dim, a.kpool);
  if (a.top_k < a.kpool || a.top_k % a.kpool)
    return invalid("top_k ({}) must be a multiple of kpool ({})", a.top_k, a.kpool);
  if (a.page_tokens < a.kpool || a.page_tokens % a.kpool)
    return invalid("page_tokens ({}) must be a multiple of kpool ({})", a.page_tokens, a.kpool);
  LATHE_RETURN_IF_ERROR(check_rows(a));
  const int64_t sequences = a.slot.count;
  for (const Ragged* r : {&a.fresh, &a.queries})
    if (r->past.count != sequences || r->start.count != sequences + 1)
      return invalid("fresh and queries must cover {} sequences, not {}", sequences, r->past.count);
  if (a.table.count < sequences * a.table_stride)
    return invalid("table has {} entries, needs {}", a.table.count, sequences * a.table_stride);
  if (!is_float(a.pages.dtype) || a.pages.item_size != int64_t{a.page_tokens} / a.kpool * a.dim)
    return invalid("pages must be f32 or bf16, {} values each, not {} {}", a.page_tokens / a.kpool * a.dim,
                   dtype_name(a.pages.dtype), a.pages.item_size);
  if (a.ring < a.kpool || a.open.dtype != a.pages.dtype || a.open.item_size != int64_t{a.ring} * 2 * a.dim)
    return invalid("open must have the pages' dtype and ring ({}) >= kpool rows of 2·dim", a.ring);
  if (a.selected.count < a.query.rows * a.width() || a.selected_count.count < a.query.rows)
    return invalid("selected needs {} entries, selected_count {}", a.query.rows * a.width(), a.query.rows);
  return Status::ok();
}

constexpr Variant<IndexSelectArgs> kVariants[] = {
    {"avx512", avx512::index_select_applies, avx512::index_select},
    {"avx2", avx2::index_select_applies, avx2::index_select},
    {"portable", portable::index_select_applies, portable::index_select},
    {"reference", always, reference::index_select},
#ifdef LATHE_CUDA
    {"cuda", cuda::index_select_applies, cuda::index_select, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<IndexSelectArgs> kIndexSelect{"index_select", kVariants, check};

Status index_select(OpContext& ctx, const IndexSelectArgs& args) { return run(ctx, kIndexSelect, args); }

}  // namespace lathe
