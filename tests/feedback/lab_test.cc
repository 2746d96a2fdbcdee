#include <gtest/gtest.h>

#include <cmath>

#include "feedback/growth.h"
#include "feedback/kda_chain.h"
#include "feedback/kda_oracle_state.h"
#include "feedback/lab_kernel.h"
#include "feedback/lab_numerics.h"
#include "feedback/paired_ratio.h"

namespace lathe {
namespace {

TEST(Growth, FindsPowersAndWhatIsFlat) {
  for (double power : {0.5, 1.0, 2.0}) {
    std::vector<ErrorAtLength> points;
    for (double n : {64, 256, 1024, 4096}) points.push_back({n, 1e-6 * std::pow(n, power)});
    const Growth g = fit_growth(points);
    EXPECT_NEAR(g.power, power, 1e-9);
    EXPECT_TRUE(g.grows());
  }
  EXPECT_FALSE(fit_growth({{64, 1.0e-4}, {256, 1.1e-4}, {1024, 0.9e-4}, {4096, 1.0e-4}}).grows());
  EXPECT_FALSE(fit_growth({{64, 1e-4}, {256, 9e-4}, {1024, 1e-4}, {4096, 9e-4}}).grows());  // noise is no power
  EXPECT_EQ(fit_growth({{64, 0}, {256, 1e-4}}).points, 1);
}

TEST(KdaChain, IsTheRecurrenceAndFormsAgree) {
  const KdaTokenSource source(KdaTokenGates::kRetain, 3);
  KdaTokens tokens(KdaChunkMap::kTokens);
  KdaOracleState recurrence;
  recurrence.set_identity();
  KdaChain<double> product(KdaChainForm::kProduct, KdaOperands::kFp32),
      increment(KdaChainForm::kIncrement, KdaOperands::kFp32);
  for (int chunk = 0; chunk < 4; ++chunk) {
    source.make(chunk * KdaChunkMap::kTokens, KdaChunkMap::kTokens, tokens);
    for (int t = 0; t < KdaChunkMap::kTokens; ++t) recurrence.step(tokens, t, false, nullptr);
    const KdaChunkMap map(tokens);
    product.append(map), increment.append(map);
  }
  ErrorRatio of_product, of_increment;
  for (int i = 0; i < kKdaTokenDim; ++i)
    for (int j = 0; j < kKdaTokenDim; ++j) {
      const double truth = recurrence.S[j * kKdaTokenDim + i];  // kept transposed
      of_product.add(product.a()[i * kKdaTokenDim + j], truth);
      of_increment.add(increment.a()[i * kKdaTokenDim + j], truth);
    }
  EXPECT_LT(of_product.value(), 1e-13);
  EXPECT_LT(of_increment.value(), 1e-13);
}

TEST(KdaChain, OperandsLoseWhatTheirFormatLoses) {
  const float third = 1.0f / 3, one = 1;
  const auto product = [&](KdaOperands operands) {
    float c = 0;
    kda_emulated_product(operands, 1, 1, 1, &third, &one, 1, &c);
    return std::fabs(c / third - 1);
  };
  EXPECT_EQ(product(KdaOperands::kFp32), 0);
  EXPECT_LT(product(KdaOperands::kTf32x3), 1e-6);
  EXPECT_NEAR(product(KdaOperands::kTf32), 1.0 / 4096, 1.0 / 8192);
  EXPECT_NEAR(product(KdaOperands::kTf32Truncated), 1.0 / 4096, 1.0 / 4096);
  EXPECT_GT(product(KdaOperands::kTf32Truncated), product(KdaOperands::kTf32) / 2);
  EXPECT_NEAR(product(KdaOperands::kBf16), 1.0 / 512, 1.0 / 512);
}

TEST(NumericsLab, NamesTheProductAndFindsNothingInTheMendedTwin) {
  NumericsLabOptions o{.tokens = {1024, 4096}, .threads = 1};
  const auto defective = run_numerics_lab(o, {});
  ASSERT_TRUE(defective.is_ok()) << defective.status().message();
  EXPECT_TRUE(defective->defect && defective->proved) << to_text(*defective);
  EXPECT_TRUE(defective->relation.growth.grows());
  EXPECT_GT(defective->smallest_failing, 0);
  EXPECT_LT(defective->smallest_failing, 1024);
  EXPECT_EQ(defective->verdict.rfind("kda_scan=product_tf32: the chain's product", 0), 0u) << defective->verdict;
  o.mended = true;
  const auto mended = run_numerics_lab(o, {});
  ASSERT_TRUE(mended.is_ok()) << mended.status().message();
  EXPECT_EQ(mended->verdict, "no defect") << to_text(*mended);
}

TEST(NumericsLab, RefusesLengthsThatAreNoWholeChunks) {
  EXPECT_FALSE(run_numerics_lab({.tokens = {1000, 2000}}, {}).is_ok());
  EXPECT_FALSE(run_numerics_lab({.tokens = {1024}}, {}).is_ok());
}

TEST(ReplayTiles, EveryFormIsTheSameFunction) {
  ReplayTilesLab lab(3, 5);
  const std::vector<double> oracle = lab.oracle();
  for (int tiles : {4, 2, 1})
    for (bool divide : {true, false})
      for (bool decay : {true, false}) {
        std::vector<float> o;
        lab.step({tiles, divide, decay}, o);
        ErrorRatio e;
        for (size_t i = 0; i < o.size(); ++i) e.add(o[i], oracle[i]);
        EXPECT_LT(e.value(), 1e-5) << ReplayTilesOptions{tiles, divide, decay}.name();
      }
}

TEST(ReplayTiles, WorkIsRepeatedByTiles) {
  const ReplayTilesWork four = replay_tiles_work({}), one = replay_tiles_work({.v_tiles = 1});
  EXPECT_GT(four.exponentials, 3.5 * static_cast<double>(one.exponentials));
  EXPECT_EQ(four.bytes, one.bytes);
}

// Times of this thread's own work, and an effect of several times: it holds beside a compiler.
TEST(KernelLab, NamesTheTilesAndFindsNothingInTheMendedTwin) {
  const auto defective = run_kernel_lab({.blocks = 6, .heads = 128}, {});
  ASSERT_TRUE(defective.is_ok()) << defective.status().message();
  EXPECT_TRUE(defective->defect && defective->proved) << to_text(*defective);
  const auto mended = run_kernel_lab({.mended = true, .blocks = 6, .heads = 128}, {});
  ASSERT_TRUE(mended.is_ok()) << mended.status().message();
  EXPECT_EQ(mended->verdict, "no defect") << to_text(*mended);
}

}  // namespace
}  // namespace lathe
