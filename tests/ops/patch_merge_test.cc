#include "ops/patch_merge/patch_merge.h"

#include <gtest/gtest.h>

#include "ops/host.h"

namespace lathe {

namespace {

using testing::Host;

TEST(PatchMerge, PutsTheMembersOfAChannelSideBySide) {
  Host host;
  for (const char* name : {"portable", "reference"}) {
    OpContext ctx = host.with(std::string("patch_merge=") + name);
    PatchMergeArgs args{.x = host.rows(6, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
                        .out = host.empty(2, 6, DType::kF32),
                        .members = 3};
    ASSERT_TRUE(patch_merge(ctx, args).is_ok());
    EXPECT_EQ(Host::values(args.out), (std::vector<float>{1, 3, 5, 2, 4, 6, 7, 9, 11, 8, 10, 12})) << name;
  }
}

TEST(PatchMerge, RefusesAHalfBlock) {
  Host host;
  PatchMergeArgs args{.x = host.empty(6, 2, DType::kF32), .out = host.empty(2, 8, DType::kF32), .members = 4};
  EXPECT_EQ(patch_merge(host.ctx, args).code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
