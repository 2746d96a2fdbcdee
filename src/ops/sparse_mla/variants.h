#pragma once

#include "ops/sparse_mla/sparse_mla.h"

namespace lathe {
namespace reference {
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
}
// sparse_mla: each sequence in the form of less work (form.h). The others: always that form, where it can be.
namespace portable {
bool sparse_mla_applies(const SparseMlaArgs& args);
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_absorbed(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_expanded(OpContext& ctx, const SparseMlaArgs& args);
}  // namespace portable
namespace avx2 {
bool sparse_mla_applies(const SparseMlaArgs& args);
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_absorbed(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_expanded(OpContext& ctx, const SparseMlaArgs& args);
}  // namespace avx2
namespace avx512 {
bool sparse_mla_applies(const SparseMlaArgs& args);
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_absorbed(OpContext& ctx, const SparseMlaArgs& args);
Status sparse_mla_expanded(OpContext& ctx, const SparseMlaArgs& args);
}  // namespace avx512
namespace cuda {
bool sparse_mla_applies(const SparseMlaArgs& args);
Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args);
}  // namespace cuda
}  // namespace lathe
