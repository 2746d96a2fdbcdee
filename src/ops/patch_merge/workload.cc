#include "ops/workload.h"

#include "ops/patch_merge/patch_merge.h"

namespace lathe {

namespace {

Case<PatchMergeArgs> merge_case(int blocks, int width, int members, bool bench, DType t) {
  const CaseInfo info{.name = fmt::format("blocks{}_w{}x{}_{}", blocks, width, members, dtype_name(t)),
                      .bytes = int64_t{2} * blocks * width * members * dtype_bytes(t),
                      .traffic = Traffic::kCopy,
                      .tolerance = 0,
                      .bench = bench};
  return {info, [=](CaseBuilder& b) {
            return PatchMergeArgs{.x = b.rows(int64_t{blocks} * members, width, t),
                                  .out = b.empty_rows(blocks, int64_t{width} * members, t),
                                  .members = members};
          }};
}

PatchMergeArgs part_of(PatchMergeArgs a, int64_t begin, int64_t count) {
  a.x = a.x.slice(begin * a.members, count * a.members), a.out = a.out.slice(begin, count);
  return a;
}

}  // namespace

AnyOp patch_merge_workload() {
  std::vector<Case<PatchMergeArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16}) {
    cases.push_back(merge_case(1, 7, 4, false, t));
    cases.push_back(merge_case(5, 33, 9, false, t));
    cases.push_back(merge_case(13, 65, 4, false, t));
    cases.push_back(merge_case(1024, 1024, 4, true, t));
  }
  return any_op(kPatchMerge, std::move(cases), part_of);
}

}  // namespace lathe
