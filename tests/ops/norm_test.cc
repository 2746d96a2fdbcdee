#include "ops/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/host.h"
#include "testing/golden.h"

namespace lathe {

namespace {

using testing::floats;
using testing::Host;
using testing::rms_ratio;

std::vector<std::string> variants(const NormArgs& args) {
  std::vector<std::string> names;
  for (const Variant<NormArgs>& v : kNorm.variants)
    if (v.applies(args)) names.push_back(v.name);
  return names;
}

void expect_golden(const std::vector<float>& x, const std::vector<float>& weight, const std::vector<float>& y,
                   DType dtype, double tolerance) {
  Host host;
  const auto width = static_cast<int64_t>(weight.size()), rows = static_cast<int64_t>(x.size()) / width;
  NormArgs args{
      .x = host.rows(rows, width, x, dtype), .weight = host.vector(weight), .y = host.empty(rows, width, dtype)};
  for (const std::string& name : variants(args)) {
    OpContext ctx = host.with("norm=" + name);
    ASSERT_TRUE(norm(ctx, args).is_ok());
    EXPECT_LE(rms_ratio(Host::values(args.y), y), tolerance) << name;
  }
}

TEST(Norm, RmsMatchesTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  for (const char* size : {"", "_small"})
    expect_golden(floats(file, std::string("rms.x") + size), floats(file, "rms.w"),
                  floats(file, std::string("rms.y") + size), DType::kF32, 1e-6);
}

// Both roundings of the reference: the normalised value before the weight, and the product.
TEST(Norm, RmsInBf16MatchesTheReferenceModelAlmostBitForBit) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  expect_golden(floats(file, "rms_bf16.x"), floats(file, "rms_bf16.w"), floats(file, "rms_bf16.y"), DType::kBF16, 2e-4);
}

TEST(Norm, ALayerNormHasTheBiasAsMeanAndTheWeightAsSpread) {
  Host host;
  const int width = 1000;
  std::vector<float> x(width);
  for (int i = 0; i < width; ++i) x[i] = 300 + std::sin(static_cast<float>(i)) * 5;
  NormArgs args{.kind = NormKind::kLayer,
                .x = host.rows(1, width, x),
                .weight = host.vector(std::vector<float>(width, 2)),
                .bias = host.vector(std::vector<float>(width, -3)),
                .y = host.empty(1, width, DType::kF32)};
  for (const std::string& name : variants(args)) {
    OpContext ctx = host.with("norm=" + name);
    ASSERT_TRUE(norm(ctx, args).is_ok());
    double mean = 0, square = 0;
    for (float y : Host::values(args.y)) mean += y / width, square += (y + 3.0) * (y + 3.0) / width;
    EXPECT_NEAR(mean, -3, 1e-4) << name;
    EXPECT_NEAR(square, 4, 1e-3) << name;
  }
}

TEST(Norm, GeluIsTheExactForm) {
  Host host;
  // With mean 0 and variance 1 the norm leaves values alone; gelu(1) = Phi(1), gelu(-1) = -Phi(-1).
  NormArgs args{.kind = NormKind::kLayer,
                .x = host.rows(1, 2, {-1, 1}),
                .weight = host.vector({1, 1}),
                .bias = host.vector({0, 0}),
                .y = host.empty(1, 2, DType::kF32),
                .eps = 0,
                .gelu = true};
  for (const std::string& name : variants(args)) {
    OpContext ctx = host.with("norm=" + name);
    ASSERT_TRUE(norm(ctx, args).is_ok());
    EXPECT_NEAR(args.y.f32()[0], -0.15865525, 1e-6) << name;
    EXPECT_NEAR(args.y.f32()[1], 0.84134475, 1e-6) << name;
  }
}

TEST(Norm, WorksInPlaceAndBetweenWiderRows) {
  Host host;
  const std::vector<float> x = {3, -4, 99, 6, 8, 99, 1, 1, 99};
  Rows padded = host.rows(3, 3, x);
  Rows inner = padded.columns(0, 2);
  NormArgs args{.x = inner, .weight = host.vector({1, 1}), .y = inner, .eps = 0};
  for (const std::string& name : variants(args)) {
    write_floats(padded.data, DType::kF32, 9, x.data());
    OpContext ctx = host.with("norm=" + name);
    ASSERT_TRUE(norm(ctx, args).is_ok());
    EXPECT_NEAR(padded.f32(1)[1], 8 / std::sqrt(50.0), 1e-6) << name;
    for (int r = 0; r < 3; ++r) EXPECT_EQ(padded.f32(r)[2], 99) << name;
  }
}

TEST(Norm, RefusesAWeightOfAnotherWidth) {
  Host host;
  NormArgs args{
      .x = host.empty(1, 4, DType::kF32), .weight = host.vector({1, 1, 1}), .y = host.empty(1, 4, DType::kF32)};
  EXPECT_EQ(norm(host.ctx, args).code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
