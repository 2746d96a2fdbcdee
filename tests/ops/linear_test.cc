#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/checkpoint.h"

namespace lathe {

namespace {

using testing::Host;
using testing::weight;

// Runs every variant that takes these Args.
template <class Test>
void for_each_variant(const LinearArgs& args, Host& host, Test test) {
  for (const Variant<LinearArgs>& v : kLinear.variants)
    if (v.applies(args)) {
      OpContext ctx = host.with(std::string("linear=") + v.name);
      const Status s = linear(ctx, args);
      ASSERT_TRUE(s.is_ok()) << s.message();
      test(v.name);
    }
}

// An int8 weight whose stored values are `steps`.
Weight int8_weight(Host& host, int64_t out, int64_t in, const std::vector<int>& steps,
                   const std::vector<float>& scale) {
  int8_t* data = host.memory.take<int8_t>(out * in);
  std::copy(steps.begin(), steps.end(), data);
  return {.data = data,
          .dtype = DType::kI8,
          .out = out,
          .in = in,
          .stride = in,
          .scale = host.vector(scale).data,
          .block_out = 1,
          .block_in = static_cast<int>(in),
          .scale_stride = 1};
}

TEST(Linear, QuantisesARowByItsLargestValue) {
  Host host;
  const Weight w = int8_weight(host, 2, 3, {1, 1, 1, -128, 0, 127}, {1, 0.5f});
  LinearArgs args(host.rows(2, 3, {127, 2.5f, -1.5f, -127, 0, 0}), {{.w = w, .y = host.empty(2, 2, DType::kF32)}});
  for_each_variant(args, host, [&](const char* name) {
    // ties to even: 127, 2, -2
    EXPECT_EQ(Host::values(args.product[0].y), (std::vector<float>{127, -(64 * 127 + 127), -127, 64 * 127})) << name;
  });
}

// -128 and 127 at once in long rows: a product of pairs would pass int16, and sums need all of int32.
TEST(Linear, Int8SumsAreExactAtTheirExtremes) {
  Host host;
  const int in = 4099;
  std::vector<int> steps(2 * in);
  for (int i = 0; i < in; ++i) steps[i] = -128, steps[in + i] = i % 2 ? 127 : -128;
  std::vector<float> x(in);
  for (int i = 0; i < in; ++i) x[i] = i % 2 ? -127.f : 127.f;
  LinearArgs args(host.rows(1, in, x),
                  {{.w = int8_weight(host, 2, in, steps, {1, 1}), .y = host.empty(1, 2, DType::kF32)}});
  const double pairs = (in - 1) / 2, extra = -128.0 * 127;
  for_each_variant(args, host, [&](const char* name) {
    EXPECT_EQ(args.product[0].y.f32()[0], static_cast<float>(extra)) << name;
    EXPECT_EQ(args.product[0].y.f32()[1], static_cast<float>(extra + pairs * (extra - 127.0 * 127))) << name;
  });
}

TEST(Linear, ARowThatIsNotFiniteSpoilsOnlyItself) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (bool int8 : {true, false}) {
    Host host;
    const Weight w = int8 ? int8_weight(host, 1, 2, {1, 2}, {1}) : weight(host, 1, 2, {1, 2}, DType::kBF16);
    LinearArgs args(host.rows(4, 2, {1, 0, nan, 1, 127, inf, 0, 0}), {{.w = w, .y = host.empty(4, 1, DType::kF32)}});
    for_each_variant(args, host, [&](const char* name) {
      const std::vector<float> y = Host::values(args.product[0].y);
      EXPECT_EQ(y[0], 1) << name;
      EXPECT_TRUE(std::isnan(y[1])) << name;
      EXPECT_FALSE(std::isfinite(y[2])) << name;
      EXPECT_EQ(y[3], 0) << name;
    });
  }
}

TEST(Linear, EightBitRowsMeetAnyWeight) {
  Host host;
  Rows x = host.empty(2, 3, DType::kE4M3);
  const float values[] = {1.5f, -448, 0.001953125f, 3, 0, -0.25f};
  for (int i = 0; i < 6; ++i) static_cast<e4m3*>(x.data)[i] = to_e4m3(values[i]);
  x.scale[0] = 2, x.scale[1] = 0.5f;
  LinearArgs args(x, {{.w = weight(host, 1, 3, {1, 0.5f, 512}, DType::kBF16), .y = host.empty(2, 1, DType::kF32)},
                      {.w = int8_weight(host, 1, 3, {2, 0, 0}, {1}), .y = host.empty(2, 1, DType::kF32)}});
  for_each_variant(args, host, [&](const char* name) {
    EXPECT_EQ(Host::values(args.product[0].y), (std::vector<float>{2 * (1.5f - 224 + 1), 0.5f * (3 - 128)})) << name;
    // 3 of at most 896 is less than half a step of int8; 1.5 is the largest of its row
    EXPECT_NEAR(args.product[1].y.f32()[0], 0, 0) << name;
    EXPECT_NEAR(args.product[1].y.f32()[1], 3, 1e-6) << name;
  });
}

TEST(Linear, EveryNumberOfE4M3CountsAsItself) {
  Host host;
  std::vector<float> x(256 * 256);
  e4m3* stored = host.memory.take<e4m3>(256);
  for (int i = 0; i < 256; ++i) stored[i].bits = static_cast<uint8_t>(i), x[i * 256 + i] = 1;
  const float scale = 0.25f;
  const Weight w{.data = stored,
                 .dtype = DType::kE4M3,
                 .out = 1,
                 .in = 256,
                 .stride = 256,
                 .scale = host.vector({scale, scale}).data,
                 .block_out = 128,
                 .block_in = 128,
                 .scale_stride = 2};
  for (int i : {0x7f, 0xff}) stored[i].bits = 0;  // NaN would spoil every row
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    LinearArgs args(host.rows(256, 256, x, dtype), {{.w = w, .y = host.empty(256, 1, DType::kF32)}});
    for_each_variant(args, host, [&](const char* name) {
      for (int i = 0; i < 256; ++i)
        EXPECT_EQ(args.product[0].y.f32()[i], scale * to_float(stored[i])) << name << " " << i;
    });
  }
}

TEST(Linear, SizesAndDtypesThatContradictAreNamed) {
  Host host;
  LinearArgs args(host.empty(2, 3, DType::kF32),
                  {{.w = weight(host, 1, 4, {1, 2, 3, 4}), .y = host.empty(2, 1, DType::kF32)}});
  EXPECT_NE(linear(host.ctx, args).message().find("w is [1, 4] and meets rows of 3"), std::string::npos);
  args.product[0].w = weight(host, 1, 3, {1, 2, 3});
  args.product[0].w.dtype = DType::kI8;
  EXPECT_NE(linear(host.ctx, args).message().find("without scales"), std::string::npos);
}

}  // namespace

}  // namespace lathe
