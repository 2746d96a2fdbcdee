#include <algorithm>
#include <cstring>

#include "ops/patch_merge/variants.h"

namespace lathe::portable {

namespace {

// Bits are copied as integers: a NaN keeps its payload. Members known at compile time become one interleaving store.
template <class Bits, int kMembers>
void merge_block(const PatchMergeArgs& args, int64_t block) {
  const int members = kMembers ? kMembers : args.members;
  Bits* out = static_cast<Bits*>(args.out.at(block));
  if constexpr (kMembers == 4) {
    const Bits* x[4];
    for (int m = 0; m < 4; ++m) x[m] = static_cast<const Bits*>(args.x.at(block * 4 + m));
    for (int64_t c = 0; c < args.x.width; ++c)
      for (int m = 0; m < 4; ++m) out[c * 4 + m] = x[m][c];
  } else {
    for (int m = 0; m < members; ++m) {
      const Bits* x = static_cast<const Bits*>(args.x.at(block * members + m));
      for (int64_t c = 0; c < args.x.width; ++c) out[c * members + m] = x[c];
    }
  }
}

}  // namespace

Status patch_merge(OpContext& ctx, const PatchMergeArgs& args) {
  const bool wide = args.x.dtype == DType::kF32;
  const int64_t blocks_per_task = std::max<int64_t>(1, 32768 / std::max<int64_t>(args.out.width, 1));
  ctx.pool->run((args.out.rows + blocks_per_task - 1) / blocks_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(args.out.rows, (task + 1) * blocks_per_task);
    for (int64_t b = task * blocks_per_task; b < end; ++b) {
      if (args.members == 4)
        wide ? merge_block<uint32_t, 4>(args, b) : merge_block<uint16_t, 4>(args, b);
      else
        wide ? merge_block<uint32_t, 0>(args, b) : merge_block<uint16_t, 0>(args, b);
    }
  });
  return Status::ok();
}

}  // namespace lathe::portable
