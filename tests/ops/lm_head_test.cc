#include "ops/lm_head/lm_head.h"

#include <gtest/gtest.h>

#include "ops/checkpoint.h"

namespace lathe {

namespace {

using testing::Host;
using testing::weight;

TEST(LmHead, TakesTheRowsAskedForInTheirOrderAndRoundsAsTheReferenceDoes) {
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (const Variant<LmHeadArgs>& v : kLmHead.variants) {
      Host host;
      LmHeadArgs args{.hidden = host.rows(3, 2, {1, 0, 0, 1, 3, 1}, dtype),
                      .row = host.ints({2, 0, 2}),
                      .w = weight(host, 2, 2, {1, 256, 1, 1}, dtype),
                      .logits = host.empty(3, 2, DType::kF32)};
      if (!v.applies(args)) continue;
      OpContext ctx = host.with(std::string("lm_head=") + v.name);
      ASSERT_TRUE(lm_head(ctx, args).is_ok());
      const float sum = dtype == DType::kBF16 ? 260 : 259;  // 259 lies between two numbers of bf16
      EXPECT_EQ(Host::values(args.logits), (std::vector<float>{sum, 4, 1, 1, sum, 4})) << v.name;
    }
}

}  // namespace

}  // namespace lathe
