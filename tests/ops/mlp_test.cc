#include "ops/mlp/mlp.h"

#include <gtest/gtest.h>

#include "ops/checkpoint.h"
#include "testing/golden.h"

namespace lathe {

namespace {

using testing::floats;
using testing::Host;
using testing::rms_ratio;

// The golden's limit of 0.8 bites on both sides.
TEST(Mlp, MatchesTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  for (const Variant<MlpArgs>& v : kMlp.variants) {
    Host host;
    MlpArgs args{.x = host.rows(9, 64, floats(file, "mlp.x")),
                 .w = {.gate = testing::weight(host, file, "mlp.gate_proj"),
                       .up = testing::weight(host, file, "mlp.up_proj"),
                       .down = testing::weight(host, file, "mlp.down_proj")},
                 .y = host.empty(9, 64, DType::kF32),
                 .limit = 0.8f};
    if (!v.applies(args)) continue;
    OpContext ctx = host.with(std::string("mlp=") + v.name);
    ASSERT_TRUE(mlp(ctx, args).is_ok());
    EXPECT_LE(rms_ratio(Host::values(args.y), floats(file, "mlp.y")), 5e-6) << v.name;
  }
}

TEST(Mlp, AGateFarBelowZeroLetsNothingThroughAndOneAboveTheLimitOnlyTheLimit) {
  for (const Variant<MlpArgs>& v : kMlp.variants) {
    Host host;
    MlpArgs args{.x = host.rows(1, 1, {1}),
                 .w = {.gate = testing::weight(host, 2, 1, {-200, 50}),
                       .up = testing::weight(host, 2, 1, {3, -70}),
                       .down = testing::weight(host, 2, 2, {1, 0, 0, 1})},
                 .y = host.empty(1, 2, DType::kF32),
                 .limit = 10};
    if (!v.applies(args)) continue;
    OpContext ctx = host.with(std::string("mlp=") + v.name);
    ASSERT_TRUE(mlp(ctx, args).is_ok());
    EXPECT_FLOAT_EQ(args.y.f32()[0], 0) << v.name;
    EXPECT_FLOAT_EQ(args.y.f32()[1], -10 * 10 / (1 + std::exp(-10.f))) << v.name;
  }
}

TEST(Mlp, SizesThatContradictAreNamed) {
  Host host;
  MlpArgs args{.x = host.empty(1, 4, DType::kF32),
               .w = {.gate = testing::weight(host, 3, 4, std::vector<float>(12)),
                     .up = testing::weight(host, 2, 4, std::vector<float>(8)),
                     .down = testing::weight(host, 4, 3, std::vector<float>(12))},
               .y = host.empty(1, 4, DType::kF32)};
  const Status s = mlp(host.ctx, args);
  ASSERT_FALSE(s.is_ok());
  EXPECT_NE(s.message().find("gate has 3 outputs, up 2"), std::string::npos) << s.message();
}

}  // namespace

}  // namespace lathe
