#include "ops/sparse_mla/sparse_mla.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/host.h"
#include "testing/golden.h"

namespace lathe {

namespace {

using testing::floats;
using testing::Host;
using testing::ints;
using testing::rms_ratio;

std::vector<std::string> variants(const SparseMlaArgs& args) {
  std::vector<std::string> names;
  for (const Variant<SparseMlaArgs>& v : kSparseMla.variants)
    if (v.applies(args)) names.push_back(v.name);
  return names;
}

// One sequence whose latents lie in pages of 8 already; no new rows.
struct Cached {
  Host host;
  SparseMlaArgs args;

  Cached(int heads, int qk, int v, int latent_dim, const std::vector<float>& query, const std::vector<float>& latents) {
    const int rows = static_cast<int>(query.size()) / heads / qk, tokens = static_cast<int>(latents.size()) / latent_dim;
    const int pages = (tokens + 7) / 8;
    args.heads = heads, args.qk = qk, args.v = v, args.latent_dim = latent_dim, args.page_tokens = 8;
    args.latent = {.rows = 0, .width = latent_dim, .stride = latent_dim};
    args.latent_norm = host.vector(std::vector<float>(latent_dim, 1));
    args.fresh = {host.ints({0, 0}), host.ints({tokens})};
    args.queries = {host.ints({0, rows}), host.ints({tokens - rows})};
    args.query = host.rows(rows, heads * qk, query);
    args.slot = host.ints({0});
    std::vector<int32_t> table(pages);
    for (int i = 0; i < pages; ++i) table[i] = pages - 1 - i;
    args.table = host.ints(table), args.table_stride = pages;
    args.pages = {.data = host.empty(pages, 8 * latent_dim, DType::kF32).data, .items = pages, .item_size = 8 * latent_dim};
    for (int t = 0; t < tokens; ++t)
      std::copy_n(latents.begin() + t * latent_dim, latent_dim, args.pages.f32(table[t / 8]) + t % 8 * latent_dim);
    args.out = host.empty(rows, heads * v, DType::kF32);
  }
  void set_sets(const std::vector<std::vector<int32_t>>& sets, int width) {
    std::vector<int32_t> selected(sets.size() * width, -1), count;
    for (size_t r = 0; r < sets.size(); ++r) {
      std::copy(sets[r].begin(), sets[r].end(), selected.begin() + r * width);
      count.push_back(static_cast<int32_t>(sets[r].size()));
    }
    args.selected = host.ints(selected), args.selected_count = host.ints(count), args.selected_width = width;
  }
  void set_kv_b(const std::vector<float>& w) {
    const int64_t out = args.heads * (args.qk + args.v);
    args.kv_b = {.data = host.rows(out, args.latent_dim, w).data, .out = out, .in = args.latent_dim, .stride = args.latent_dim};
  }
};

std::vector<std::vector<int32_t>> golden_sets(const Safetensors& file) {
  const std::vector<int32_t> allowed = ints(file, "mla.allowed");
  const int64_t t = testing::shape(file, "mla.allowed")[0];
  std::vector<std::vector<int32_t>> sets(t);
  for (int64_t i = 0; i < t; ++i)
    for (int64_t j = 0; j < t; ++j)
      if (allowed[i * t + j]) sets[i].push_back(static_cast<int32_t>(j));
  return sets;
}

TEST(SparseMla, HeadsMatchTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_attn_tiny.safetensors");
  Cached c(4, 24, 16, 32, floats(file, "mla.q"), floats(file, "mla.latent"));
  c.set_kv_b(floats(file, "mla.p.kv_b_proj.weight"));
  c.set_sets(golden_sets(file), 35);
  for (const std::string& name : variants(c.args)) {
    OpContext ctx = c.host.with("sparse_mla=" + name);
    ASSERT_TRUE(sparse_mla(ctx, c.args).is_ok());
    EXPECT_LE(rms_ratio(Host::values(c.args.out), floats(file, "mla.heads_out")), 5e-6) << name;
  }
}

// The golden has q~ and z of each head. With Wk = 16·I over 512 channels, q may be q~, and with Wv = I the output is z.
TEST(SparseMla, LatentAttentionOfTheReleasedSizesMatchesTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_attn_realdims.safetensors");
  Cached c(2, 512, 512, 512, floats(file, "mla.q_latent"), floats(file, "mla.latent"));
  std::vector<float> identity(2 * 1024 * 512);
  const float scale = std::sqrt(512.0f) / 16;  // of the scores: 256^-½ there, 512^-½ here
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 1024; ++i) identity[(h * 1024 + i) * 512 + i % 512] = i < 512 ? scale : 1;
  c.set_kv_b(identity);
  c.set_sets(golden_sets(file), 19);
  for (const std::string& name : variants(c.args)) {
    OpContext ctx = c.host.with("sparse_mla=" + name);
    ASSERT_TRUE(sparse_mla(ctx, c.args).is_ok());
    EXPECT_LE(rms_ratio(Host::values(c.args.out), floats(file, "mla.ctx_latent")), 5e-6) << name;
  }
}

}  // namespace

}  // namespace lathe
