#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "ops/host.h"

namespace lathe {

namespace {

using testing::Host;

class Embedding : public ::testing::TestWithParam<const char*> {};

TEST_P(Embedding, CopiesTableRowsFeaturesAndZeroes) {
  Host host;
  OpContext ctx = host.with(std::string("embedding=") + GetParam());
  const std::vector<float> table = {0, 1, 10, 11, 20, 21};
  EmbeddingArgs args{.token = host.ints({2, -1, 0, 1, -1}),
                     .feature = host.ints({-1, -1, 1, -1, 0}),
                     .table = {.data = host.rows(3, 2, table).data, .out = 3, .in = 2, .stride = 2},
                     .features = host.rows(2, 2, {-1, -2, -3, -4}),
                     .out = host.empty(5, 4, DType::kF32),
                     .copies = 2};
  ASSERT_TRUE(embedding(ctx, args).is_ok());
  // A padding row stays zero even if somebody gave it a feature.
  EXPECT_EQ(Host::values(args.out),
            (std::vector<float>{20, 21, 20, 21, 0, 0, 0, 0, -3, -4, -3, -4, 10, 11, 10, 11, 0, 0, 0, 0}));
}

TEST_P(Embedding, ConvertsHalfTablesExactly) {
  Host host;
  OpContext ctx = host.with(std::string("embedding=") + GetParam());
  const f16 table[] = {{0x3c00}, {0xc000}, {0x0001}, {0x7bff}};  // 1, -2, 2^-24, 65504
  EmbeddingArgs args{.token = host.ints({1, 0}),
                     .table = {.data = table, .dtype = DType::kF16, .out = 2, .in = 2, .stride = 2},
                     .out = host.empty(2, 2, DType::kF32)};
  ASSERT_TRUE(embedding(ctx, args).is_ok());
  EXPECT_EQ(Host::values(args.out), (std::vector<float>{0x1p-24f, 65504, 1, -2}));
}

INSTANTIATE_TEST_SUITE_P(Variants, Embedding, ::testing::Values("portable", "reference"));

TEST(EmbeddingDoor, RefusesAnIdOutsideTheVocabulary) {
  Host host;
  for (int32_t token : {3, -2, 1 << 30}) {
    EmbeddingArgs args{.token = host.ints({0, token}),
                       .table = {.data = host.rows(3, 2, {0, 1, 10, 11, 20, 21}).data, .out = 3, .in = 2, .stride = 2},
                       .out = host.empty(2, 2, DType::kF32)};
    EXPECT_EQ(embedding(host.ctx, args).code(), StatusCode::kInvalid) << token;
  }
}

}  // namespace

}  // namespace lathe
