#include "ops/index_select/index_select.h"

#include <gtest/gtest.h>

#include <algorithm>
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

std::vector<std::string> variants(const IndexSelectArgs& args) {
  std::vector<std::string> names;
  for (const Variant<IndexSelectArgs>& v : kIndexSelect.variants)
    if (v.applies(args)) names.push_back(v.name);
  return names;
}

// A call over one sequence that owns pages 0, 1, 2, ... in reverse.
struct OneSequence {
  Host host;
  IndexSelectArgs args;

  OneSequence(int heads, int dim, int kpool, int top_k, int past, int rows, int query_rows, DType dtype = DType::kF32) {
    const int page_tokens = 2 * kpool, pages = (past + rows + query_rows) / page_tokens + 1;
    args.heads = heads, args.dim = dim, args.kpool = kpool, args.top_k = top_k, args.page_tokens = page_tokens,
    args.ring = kpool;
    std::vector<int32_t> table(pages);
    for (int i = 0; i < pages; ++i) table[i] = pages - 1 - i;
    args.table = host.ints(table), args.table_stride = pages;
    args.slot = host.ints({0});
    args.fresh = {host.ints({0, rows}), host.ints({past})};
    args.queries = {host.ints({0, query_rows}), host.ints({past})};
    args.key = args.gate = {.dtype = dtype, .rows = 0, .width = dim, .stride = dim};
    args.key_norm_weight = host.vector(std::vector<float>(dim, 1));
    args.key_norm_bias = host.vector(std::vector<float>(dim, 0));
    args.ape = host.vector(std::vector<float>(kpool * dim, 0));
    args.pages = {.data = host.empty(pages, 2 * dim, dtype).data, .dtype = dtype, .items = pages, .item_size = 2 * dim};
    args.open = {
        .data = host.empty(1, kpool * 2 * dim, dtype).data, .dtype = dtype, .items = 1, .item_size = kpool * 2 * dim};
    args.selected = {host.memory.take<int32_t>(query_rows * args.width()), query_rows * args.width()};
    args.selected_count = {host.memory.take<int32_t>(query_rows), query_rows};
  }

  int64_t pool_offset(int p) const { return args.table[p / 2] * args.pages.item_size + p % 2 * args.dim; }
  void set_pool(int p, const std::vector<float>& key) {
    write_floats(static_cast<char*>(args.pages.data) + pool_offset(p) * dtype_bytes(args.pages.dtype), args.pages.dtype,
                 args.dim, key.data());
  }
  std::vector<float> pool(int p) const {
    return {args.pages.f32(0) + pool_offset(p), args.pages.f32(0) + pool_offset(p) + args.dim};
  }
  std::vector<int32_t> set(int64_t row) const {
    const int32_t* begin = args.selected.data + row * args.width();
    for (int i = args.selected_count[row]; i < args.width(); ++i) EXPECT_EQ(begin[i], -1);
    return {begin, begin + args.selected_count[row]};
  }
  void run(const std::string& variant) {
    OpContext ctx = host.with("index_select=" + variant);
    const Status s = index_select(ctx, args);
    ASSERT_TRUE(s.is_ok()) << s.message();
  }
};

std::vector<int32_t> golden_set(const std::vector<int32_t>& topk, int64_t row, int64_t width) {
  std::vector<int32_t> set;
  for (int64_t i = 0; i < width; ++i)
    if (topk[row * width + i] >= 0) set.push_back(topk[row * width + i]);
  std::sort(set.begin(), set.end());
  return set;
}

std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w, int64_t in) {  // x·wᵀ
  const int64_t rows = static_cast<int64_t>(x.size()) / in, out = static_cast<int64_t>(w.size()) / in;
  std::vector<float> y(rows * out);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += double{x[r * in + i]} * w[o * in + i];
      y[r * out + o] = static_cast<float>(sum);
    }
  return y;
}

// Keys, gates, pools and sets from the layer's input, in one call and in pieces.
TEST(IndexSelect, PoolsAndSetsMatchTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_attn_tiny.safetensors");
  const std::vector<float> key = product(floats(file, "mla.x"), floats(file, "mla.p.indexer.wk.weight"), 64),
                           gate = floats(file, "idx.gate"), query = floats(file, "idx.q"),
                           weight = floats(file, "idx.head_weights");
  const std::vector<int32_t> topk = ints(file, "idx.topk");
  for (const std::vector<int>& cuts : {std::vector<int>{0, 75}, {0, 1, 2, 5, 6, 40, 41, 43, 74, 75}}) {
    OneSequence one(16, 16, 4, 32, 0, 75, 75);
    IndexSelectArgs& a = one.args;
    a.key_norm_weight = one.host.vector(floats(file, "mla.p.indexer.k_norm.weight"));
    a.key_norm_bias = one.host.vector(floats(file, "mla.p.indexer.k_norm.bias"));
    a.ape = one.host.vector(floats(file, "idx.ape"));
    const Rows all[] = {one.host.rows(75, 16, key), one.host.rows(75, 16, gate), one.host.rows(75, 256, query),
                        one.host.rows(75, 16, weight)};
    for (const std::string& name : variants(a))
      for (size_t c = 0; c + 1 < cuts.size(); ++c) {
        const int begin = cuts[c], rows = cuts[c + 1] - begin;
        a.key = all[0].slice(begin, rows), a.gate = all[1].slice(begin, rows);
        a.query = all[2].slice(begin, rows), a.head_weight = all[3].slice(begin, rows);
        a.fresh = a.queries = {one.host.ints({0, rows}), one.host.ints({begin})};
        one.run(name);
        for (int r = 0; r < rows; ++r)
          EXPECT_EQ(one.set(r), golden_set(topk, begin + r, 35)) << name << " row " << begin + r;
        std::vector<float> pools;
        for (int p = 0; p < cuts[c + 1] / 4; ++p)
          for (float x : one.pool(p)) pools.push_back(x);
        std::vector<float> golden = floats(file, "idx.pool_keys");
        golden.resize(pools.size());
        EXPECT_LE(rms_ratio(pools, golden), 1e-6) << name;
      }
  }
}

// Pool keys as the cache has them, queries alone: the released head sizes.
TEST(IndexSelect, SetsOfTheReleasedSizesMatchTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_attn_realdims.safetensors");
  OneSequence one(32, 128, 4, 16, 0, 0, 44);
  const std::vector<float> pools = floats(file, "idx.pool_keys");
  for (int p = 0; p < 11; ++p) one.set_pool(p, {pools.begin() + p * 128, pools.begin() + (p + 1) * 128});
  one.args.query = one.host.rows(44, 32 * 128, floats(file, "idx.q"));
  one.args.head_weight = one.host.rows(44, 32, floats(file, "idx.head_weights"));
  const std::vector<int32_t> topk = ints(file, "idx.topk");
  for (const std::string& name : variants(one.args)) {
    one.run(name);
    for (int r = 0; r < 44; ++r) EXPECT_EQ(one.set(r), golden_set(topk, r, 19)) << name << " row " << r;
  }
}

// One head, one channel: a pool's score is its key, where that is positive.
TEST(IndexSelect, EqualScoresAndNanGoToTheLowerPool) {
  const float nan = std::nanf("");
  const std::vector<float> keys = {nan, 1, 5, -2, 5, 5, nan, 0, 5, 1};
  struct Expected {
    int pools;
    std::vector<int32_t> set;
  };
  for (const auto& [chosen, set] : {Expected{1, {2}},
                                    {3, {2, 4, 5}},
                                    {5, {1, 2, 4, 5, 8}},
                                    {7, {1, 2, 3, 4, 5, 8, 9}},
                                    {9, {0, 1, 2, 3, 4, 5, 7, 8, 9}}}) {
    OneSequence one(1, 1, 1, chosen, 9, 0, 1);
    for (int p = 0; p < 10; ++p) one.set_pool(p, {keys[p]});
    one.args.query = one.host.rows(1, 1, {1});
    one.args.head_weight = one.host.rows(1, 1, {1});
    for (const std::string& name : variants(one.args)) {
      one.run(name);
      EXPECT_EQ(one.set(0), set) << name;
    }
  }
}

// A negative head weight turns the order round, and every pool it doesn't see stays ahead of those it does.
TEST(IndexSelect, HeadWeightsMayBeNegative) {
  OneSequence one(1, 1, 1, 2, 4, 0, 1);
  const std::vector<float> keys = {3, 1, 2, -4, 5};
  for (int p = 0; p < 5; ++p) one.set_pool(p, {keys[p]});
  one.args.query = one.host.rows(1, 1, {1});
  one.args.head_weight = one.host.rows(1, 1, {-1});
  for (const std::string& name : variants(one.args)) {
    one.run(name);
    EXPECT_EQ(one.set(0), (std::vector<int32_t>{1, 3})) << name;
  }
}

// Sequences of every phase in one call.
struct Ragged7 {
  Host host;
  std::vector<CaseSequence> sequences = {{0, 5}, {200, 9}, {90, 21}, {50, 3, true}, {131, 1}, {400, 1}, {0, 130}};
  IndexSelectArgs args;
  std::vector<char> pages, open;

  Ragged7(DType dtype, int threads) : host(threads) {
    CaseBuilder b(*host.device, host.memory, 11);
    const PagedCase c = paged_case(b, sequences, 16);
    args.heads = 6, args.dim = 40, args.kpool = 4, args.top_k = 24, args.page_tokens = 16, args.ring = 7;
    args.key = b.rows(c.total_rows, 40, dtype, 2), args.gate = b.rows(c.total_rows, 40, dtype);
    args.key_norm_weight = b.vector(40, 0.2, 1), args.key_norm_bias = b.vector(40, 0.2), args.ape = b.vector(160, 0.5);
    args.query = b.rows(c.total_rows, 240, dtype), args.head_weight = b.rows(c.total_rows, 6, DType::kF32);
    args.fresh = args.queries = c.rows, args.slot = c.slot, args.table = c.table, args.table_stride = c.table_stride;
    args.pages = b.pool(c.num_pages, 4 * 40, dtype, 1), args.open = b.pool(c.slot.count + 1, 7 * 80, dtype, 1);
    args.selected = b.empty<int32_t>(c.total_rows * args.width()), args.selected_count = b.empty<int32_t>(c.total_rows);
    pages = bytes(args.pages), open = bytes(args.open);
  }
  static std::vector<char> bytes(const Pool& p) {
    const char* data = static_cast<const char*>(p.data);
    return {data, data + p.items * p.item_bytes()};
  }
  void restore() {
    std::copy(pages.begin(), pages.end(), static_cast<char*>(args.pages.data));
    std::copy(open.begin(), open.end(), static_cast<char*>(args.open.data));
    std::fill_n(args.selected.data, args.selected.count, 77);
  }
  std::vector<int32_t> sets() const { return {args.selected.data, args.selected.data + args.selected.count}; }
  IndexSelectArgs alone(int i) {
    IndexSelectArgs one = args;
    const int begin = args.fresh.start[i], rows = args.fresh.start[i + 1] - begin;
    for (Rows* r : {&one.key, &one.gate, &one.query, &one.head_weight}) *r = r->slice(begin, rows);
    one.fresh = one.queries = {host.ints({0, rows}), {args.fresh.past.data + i, 1}};
    one.slot = {args.slot.data + i, 1}, one.table = {args.table.data + i * args.table_stride, args.table_stride};
    one.selected = {args.selected.data + begin * args.width(), rows * args.width()};
    one.selected_count = {args.selected_count.data + begin, rows};
    return one;
  }
};

TEST(IndexSelect, ASequenceHasTheSameBitsAloneAndInCompanyOnAnyNumberOfThreads) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Ragged7 together(dtype, 3), apart(dtype, 1);
    for (const std::string& name : variants(together.args)) {
      OpContext ctx3 = together.host.with("index_select=" + name), ctx1 = apart.host.with("index_select=" + name);
      together.restore(), apart.restore();
      ASSERT_TRUE(index_select(ctx3, together.args).is_ok());
      for (size_t i = 0; i < apart.sequences.size(); ++i) {
        const IndexSelectArgs one = apart.alone(static_cast<int>(i));
        ASSERT_TRUE(index_select(ctx1, one).is_ok());
      }
      EXPECT_EQ(together.sets(), apart.sets()) << name;
      EXPECT_EQ(Ragged7::bytes(together.args.pages), Ragged7::bytes(apart.args.pages)) << name;
      EXPECT_EQ(Ragged7::bytes(together.args.open), Ragged7::bytes(apart.args.open)) << name;
    }
  }
}

// Rejected draft rows: what follows a rollback sees the ring as if they had never been.
TEST(IndexSelect, ARingWithRoomToSpareSurvivesARollback) {
  for (const std::string& name : {std::string("reference"), variants(OneSequence(1, 3, 4, 8, 0, 5, 5).args).front()}) {
    std::vector<float> drafted, plain;
    for (std::vector<float>* out : {&drafted, &plain}) {
      OneSequence one(1, 3, 4, 8, 0, 5, 5);
      IndexSelectArgs& a = one.args;
      a.ring = 8;
      a.open = {.data = one.host.empty(1, 8 * 6, DType::kF32).data, .items = 1, .item_size = 8 * 6};
      a.ape = one.host.vector({0.1f, 0.2f, 0, 0, 0, 0.5f, 0, 0.3f, 0, 1, 0, 0});
      CaseBuilder b(*one.host.device, one.host.memory, 5);
      const Rows key = b.rows(8, 3, DType::kF32), gate = b.rows(8, 3, DType::kF32), query = b.rows(8, 3, DType::kF32),
                 wrong = b.rows(8, 3, DType::kF32);
      auto feed = [&](int begin, int rows, const Rows& keys) {
        a.key = keys.slice(begin, rows), a.gate = gate.slice(begin, rows), a.query = query.slice(begin, rows);
        a.head_weight = one.host.rows(rows, 1, std::vector<float>(rows, 1));
        a.fresh = a.queries = {one.host.ints({0, rows}), one.host.ints({begin})};
        one.run(name);
      };
      feed(0, 5, key);                         // pool 0, and position 4 in the ring
      if (out == &drafted) feed(5, 2, wrong);  // rejected
      feed(5, 1, key), feed(6, 2, key);        // pool 1
      *out = one.pool(1);
    }
    EXPECT_EQ(drafted, plain) << name;
  }
}

}  // namespace

}  // namespace lathe
