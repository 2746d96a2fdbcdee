#include "ops/sparse_mla/sparse_mla.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/case_sequences.h"
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
    const int rows = static_cast<int>(query.size()) / heads / qk,
              tokens = static_cast<int>(latents.size()) / latent_dim;
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
    args.pages = {
        .data = host.empty(pages, 8 * latent_dim, DType::kF32).data, .items = pages, .item_size = 8 * latent_dim};
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
    args.kv_b = {
        .data = host.rows(out, args.latent_dim, w).data, .out = out, .in = args.latent_dim, .stride = args.latent_dim};
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

// Sequences of every phase in one call; every row attends to all of its past, or to a part.
struct Batch {
  Host host;
  std::vector<CaseSequence> sequences = {{0, 40}, {300, 9}, {0, 21}, {50, 3, true}, {131, 1}, {20, 30}, {600, 1}};
  SparseMlaArgs args;

  Batch(DType dtype, int threads) : host(threads) {
    CaseBuilder b(*host.device, host.memory, 11);
    const PagedCase c = paged_case(b, sequences, 16);
    args.heads = 5, args.qk = 24, args.v = 20, args.latent_dim = 72, args.page_tokens = 16;
    args.latent = b.rows(c.total_rows, 72, dtype), args.latent_norm = b.vector(72, 0.2, 1);
    args.query = b.rows(c.total_rows, 5 * 24, dtype), args.kv_b = b.weight(5 * 44, 72, dtype, 0.1);
    args.fresh = args.queries = c.rows, args.slot = c.slot, args.table = c.table, args.table_stride = c.table_stride;
    args.pages = b.pool(c.num_pages, 16 * 72, dtype, 1);
    args.selected_width = 601;
    std::vector<int32_t> selected(c.total_rows * 601, -1), count;
    for (const CaseSequence& s : sequences)
      for (int t = s.past; t < s.past + s.rows; ++t) {
        int32_t* row = selected.data() + count.size() * 601;
        int n = 0;
        for (int j = 0; j <= t; ++j)
          if (t < 100 || j % 3 != 1) row[n++] = j;
        count.push_back(n);
      }
    args.selected = b.ints(selected), args.selected_count = b.ints(count);
    args.out = b.empty_rows(c.total_rows, 5 * 20, dtype);
  }
  // Rows [first, first + rows) of sequence i.
  SparseMlaArgs part(int i, int first, int rows) {
    SparseMlaArgs one = args;
    const int begin = args.fresh.start[i] + first;
    for (Rows* r : {&one.latent, &one.query, &one.out}) *r = r->slice(begin, rows);
    one.fresh = one.queries = {host.ints({0, rows}), host.ints({sequences[i].past + first})};
    one.slot = {args.slot.data + i, 1}, one.table = {args.table.data + i * args.table_stride, args.table_stride};
    one.selected = {args.selected.data + begin * 601, rows * 601};
    one.selected_count = {args.selected_count.data + begin, rows};
    return one;
  }
  void run(const std::string& name, const SparseMlaArgs& a) {
    OpContext ctx = host.with("sparse_mla=" + name);
    ASSERT_TRUE(sparse_mla(ctx, a).is_ok());
  }
};

TEST(SparseMla, ASequenceHasTheSameBitsAloneAndInCompanyOnAnyNumberOfThreads) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Batch together(dtype, 3), apart(dtype, 1);
    for (const std::string& name : variants(together.args)) {
      together.run(name, together.args);
      for (size_t i = 0; i < apart.sequences.size(); ++i)
        apart.run(name, apart.part(static_cast<int>(i), 0, apart.sequences[i].rows));
      EXPECT_EQ(Host::values(together.args.out), Host::values(apart.args.out)) << name;
    }
  }
}

// `absorbed` and `expanded` don't care how a sequence is cut; the others only where a cut has enough rows to expand.
TEST(SparseMla, BitsDependOnTheRowsOwnSetHoweverTheSequenceIsCut) {
  Batch whole(DType::kBF16, 2), cut(DType::kBF16, 2);
  for (const std::string& name : variants(whole.args)) {
    const bool chooses = name != "absorbed" && name != "expanded" && name != "reference";
    for (int i : {0, 1, 5}) {
      const int rows = whole.sequences[i].rows;
      if (chooses && rows >= 16) continue;
      whole.run(name, whole.part(i, 0, rows));
      for (int first = 0, n = 1; first < rows; first += n, n = std::min(n + 1, rows - first))
        cut.run(name, cut.part(i, first, n));
      const int64_t begin = whole.args.fresh.start[i];
      EXPECT_EQ(Host::values(whole.args.out.slice(begin, rows)), Host::values(cut.args.out.slice(begin, rows)))
          << name << " sequence " << i;
    }
  }
}

TEST(SparseMla, BothFormsAgree) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Batch b(dtype, 2);
    b.run("absorbed", b.args);
    const std::vector<float> absorbed = Host::values(b.args.out);
    b.run("expanded", b.args);
    EXPECT_LE(rms_ratio(Host::values(b.args.out), absorbed), dtype == DType::kF32 ? 3e-6 : 2e-3);
    EXPECT_NE(Host::values(b.args.out), absorbed);  // else the test compares one form with itself
  }
}

TEST(SparseMla, AnEmptySetAndPaddingGiveZero) {
  Cached c(2, 8, 6, 16, std::vector<float>(3 * 2 * 8, 0.5f), std::vector<float>(24 * 16, 1));
  c.set_kv_b(std::vector<float>(2 * 14 * 16, 0.1f));
  c.set_sets({{0, 5}, {}, {7}}, 4);
  for (const std::string& name : variants(c.args)) {
    std::fill_n(c.args.out.f32(), 3 * 12, 9.0f);
    OpContext ctx = c.host.with("sparse_mla=" + name);
    ASSERT_TRUE(sparse_mla(ctx, c.args).is_ok());
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(c.args.out.f32(1)[i], 0) << name;
      EXPECT_NEAR(c.args.out.f32(2)[i], 1.6, 1e-5) << name;
    }
    SparseMlaArgs padded = c.args;
    padded.slot = c.host.ints({-1});
    ASSERT_TRUE(sparse_mla(ctx, padded).is_ok());
    for (int i = 0; i < 36; ++i) EXPECT_EQ(c.args.out.f32()[i], 0) << name;
  }
}

}  // namespace

}  // namespace lathe
