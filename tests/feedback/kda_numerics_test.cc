#include "feedback/kda_numerics.h"

#include <gtest/gtest.h>

#include <set>

#include "feedback/kda_forms.h"

namespace lathe {
namespace {

// The long test of `lathe verify --long`, at lengths that take a second.
TEST(KdaNumerics, HoldAtShortLengthsAndTheProductFormDrifts) {
  const auto rows =
      kda_numerics({.tokens = {1024, 8192}, .segments = {2, 16}, .threads = 1}, [](const std::string&, int, int) {});
  ASSERT_TRUE(rows.is_ok()) << rows.status().message();
  std::set<std::string> forms;
  int failing = 0;
  for (const KdaNumericsRow& row : *rows) {
    forms.insert(row.form);
    failing += row.must_fail;
    EXPECT_TRUE(row.as_expected()) << row.gates << " " << row.form << " x" << row.segments << " at " << row.tokens
                                   << ": state " << row.state_error << " outputs " << row.output_error << " map "
                                   << row.map_error;
  }
  EXPECT_EQ(forms, (std::set<std::string>{"decode", "sequential", "chunked", "replay", "increment", "increment_tf32",
                                          "product_tf32"}));
  EXPECT_EQ(rows->size(), 2u * 2 * (4 + 2 * 3));
  EXPECT_EQ(failing, 2 * 2);
}

// Retaining gates do retain: a segment's map still carries something of the state into the next one. Else the scan's
// tests would pass with any map at all.
TEST(KdaNumerics, RetainingMapsAreNotZero) {
  auto device = make_cpu_device();
  Arena arena = Arena::create(*device, 64 << 20).value();
  for (auto gates : {KdaTokenGates::kRetain, KdaTokenGates::kForget}) {
    const KdaTokenSource source(gates, 1);
    KdaOracleState map;
    map.set_identity();
    KdaTokens tokens(16);
    for (int64_t t = 0; t < 4096; t += 16) {
      source.make(t, 16, tokens);
      for (int i = 0; i < 16; ++i) map.step(tokens, i, false, nullptr);
    }
    double squares = 0;
    for (double x : map.S) squares += x * x;
    if (gates == KdaTokenGates::kRetain)
      EXPECT_GT(squares, 1);
    else
      EXPECT_LT(squares, 1e-30);
  }
}

TEST(KdaNumerics, TokensDependOnTheirNumberAlone) {
  const KdaTokenSource source(KdaTokenGates::kRetain, 7);
  KdaTokens many(16), one(1);
  source.make(100, 16, many);
  source.make(109, 1, one);
  EXPECT_EQ(std::vector<float>(many.k.begin() + 9 * kKdaTokenDim, many.k.begin() + 10 * kKdaTokenDim), one.k);
  EXPECT_EQ(many.b[9], one.b[0]);
}

TEST(KdaNumerics, RefusesLengthsThatDoNotDivide) {
  EXPECT_FALSE(kda_numerics({.tokens = {1000}}, [](const std::string&, int, int) {}).is_ok());
  EXPECT_FALSE(kda_numerics({.tokens = {1024}, .segments = {3, 16}}, [](const std::string&, int, int) {}).is_ok());
}

}  // namespace
}  // namespace lathe
