#include "ops/vision_attention/vision_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/host.h"
#include "testing/golden.h"

namespace lathe {

namespace {

using testing::Host;

// Everything a call needs, with plain values to change before args() is taken.
struct Setting {
  int heads = 1, dim = 4;
  std::vector<int32_t> row, col, start;
  std::vector<float> qkv;

  VisionAttentionArgs args(Host& host) const {
    const auto patches = static_cast<int64_t>(row.size());
    const std::vector<float> ones(dim, 1);
    return {.qkv = host.rows(patches, 3 * heads * dim, qkv),
            .q_norm = host.vector(ones),
            .k_norm = host.vector(ones),
            .row = host.ints(row),
            .col = host.ints(col),
            .segment_start = host.ints(start),
            .out = host.empty(patches, heads * dim, DType::kF32),
            .heads = heads,
            .dim = dim,
            .norm_eps = 0};
  }
};

void for_each_variant(const Setting& setting, const std::function<void(const std::vector<float>&, const char*)>& look) {
  Host host;
  const VisionAttentionArgs args = setting.args(host);
  for (const Variant<VisionAttentionArgs>& v : kVisionAttention.variants)
    if (v.applies(args)) {
      OpContext ctx = host.with(std::string("vision_attention=") + v.name);
      ASSERT_TRUE(vision_attention(ctx, args).is_ok()) << v.name;
      look(Host::values(args.out), v.name);
    }
}

TEST(VisionAttention, APatchAloneKeepsItsValue) {
  Setting s{.row = {5, 6}, .col = {900, 2}, .start = {0, 1, 2}};
  s.qkv = {1, 2, 3, 4, 4, 3, 2, 1, 10, 20, 30, 40, 1, 0, 0, 0, 0, 0, 0, 1, -1, -2, -3, -4};
  for_each_variant(s, [](const std::vector<float>& out, const char* name) {
    EXPECT_EQ(out, (std::vector<float>{10, 20, 30, 40, -1, -2, -3, -4})) << name;
  });
}

// With D = 4 there is one frequency, 1: the query turns by its row in channels (0, 2) and by its column in (1, 3). Two
// keys of one direction at different rows then score cos(row difference)·4·D^-½.
TEST(VisionAttention, ScoresFallWithTheAngleBetweenPositions) {
  Setting s{.row = {3, 5}, .col = {8, 8}, .start = {0, 2}};
  s.qkv = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0};
  const double same = std::exp(2.0), other = std::exp(2.0 * std::cos(2.0));  // norm makes the channel 2; 2·2/sqrt(4)
  for_each_variant(s, [&](const std::vector<float>& out, const char* name) {
    EXPECT_NEAR(out[0], same / (same + other), 2e-6) << name;
    EXPECT_NEAR(out[1], other / (same + other), 2e-6) << name;
    EXPECT_NEAR(out[4], other / (same + other), 2e-6) << name;
  });
}

// More keys than a block holds, the greatest score last: the running maximum has to scale what went before.
TEST(VisionAttention, AGreatScoreFarBackOutweighsEarlierBlocks) {
  const int patches = 600, dim = 8;
  Setting s{
      .dim = dim, .row = std::vector<int32_t>(patches), .col = std::vector<int32_t>(patches), .start = {0, patches}};
  for (int p = 0; p < patches; ++p)
    for (int part = 0; part < 3; ++part)
      for (int i = 0; i < dim; ++i)
        s.qkv.push_back(part == 2                                    ? static_cast<float>(p == patches - 1)
                        : (part == 0 || p == patches - 1) == (i < 4) ? 1e-3f
                                                                     : 1.0f);
  // Queries point at the last key alone.
  double near = 0, far = 0;
  const double small = 1e-3, norm = std::sqrt((4 * small * small + 4) / 8);
  near = (4 * small * small + 4) / (norm * norm) / std::sqrt(8.0);
  far = 8 * small / (norm * norm) / std::sqrt(8.0);
  const double weight = 1 / (1 + (patches - 1) * std::exp(far - near));
  for_each_variant(s, [&](const std::vector<float>& out, const char* name) {
    for (int p : {0, 255, 256, 599}) EXPECT_NEAR(out[p * dim], weight, 1e-6) << name << " patch " << p;
  });
}

TEST(VisionAttention, ANanStaysInItsSegment) {
  Setting s{.row = {0, 0, 1, 1}, .col = {0, 1, 0, 1}, .start = {0, 2, 4}};
  s.qkv.assign(4 * 12, 1.0f);
  s.qkv[4] = std::nanf("");  // a key of the first segment
  for_each_variant(s, [](const std::vector<float>& out, const char* name) {
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(out[i])) << name;
    for (int i = 8; i < 16; ++i) EXPECT_NEAR(out[i], 1, 1e-6) << name;
  });
}

TEST(VisionAttention, RefusesPositionsAndSegmentsThatAreNone) {
  Host host;
  const Setting good{.row = {0, 1}, .col = {0, 1}, .start = {0, 2}, .qkv = std::vector<float>(24, 1.0f)};
  ASSERT_TRUE(vision_attention(host.ctx, good.args(host)).is_ok());
  Setting negative = good, large = good, gap = good, backward = good;
  negative.row[1] = -1;
  large.col[0] = 1 << 20;
  gap.start = {0, 1};
  backward.start = {0, 2, 1, 2};
  for (const Setting& s : {negative, large, gap, backward})
    EXPECT_EQ(vision_attention(host.ctx, s.args(host)).code(), StatusCode::kInvalid);
}

}  // namespace

}  // namespace lathe
