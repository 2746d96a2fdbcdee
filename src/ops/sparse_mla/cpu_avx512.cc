#include "base/cpu_features.h"
#include "ops/lanes_avx512.h"
// After the lanes it is written over.
#include "ops/sparse_mla/blocks.h"
#include "ops/sparse_mla/variants.h"

namespace lathe::avx512 {

bool sparse_mla_applies(const SparseMlaArgs&) { return cpu_features().avx512; }

Status sparse_mla(OpContext& ctx, const SparseMlaArgs& args) { return attend(ctx, args, FormChoice::kByWork); }
Status sparse_mla_absorbed(OpContext& ctx, const SparseMlaArgs& args) {
  return attend(ctx, args, FormChoice::kAbsorbed);
}
Status sparse_mla_expanded(OpContext& ctx, const SparseMlaArgs& args) {
  return attend(ctx, args, FormChoice::kExpanded);
}

}  // namespace lathe::avx512
