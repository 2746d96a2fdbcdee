#include <gtest/gtest.h>

#include <cmath>

#include "ops/hc_boundary/hc_boundary.h"
#include "ops/hc_head/hc_head.h"
#include "ops/host.h"
#include "ops/workload.h"
#include "testing/golden.h"

namespace lathe {

namespace {

using testing::floats;
using testing::Host;
using testing::rms_ratio;

template <class Args>
std::vector<std::string> variants(const Op<Args>& op, const Args& args) {
  std::vector<std::string> names;
  for (const Variant<Args>& v : op.variants)
    if (v.applies(args)) names.push_back(v.name);
  return names;
}

std::vector<float> values(const Array<float>& a) { return {a.data, a.data + a.count}; }

// w·v·rsqrt(mean(v²) + eps), row by row: what an RMSNorm makes of golden values that stop short of it.
std::vector<float> rms_normed(std::vector<float> v, const std::vector<float>& w, double eps) {
  for (size_t r = 0; r < v.size(); r += w.size()) {
    double square = 0;
    for (size_t i = 0; i < w.size(); ++i) square += double{v[r + i]} * v[r + i];
    const double scale = 1 / std::sqrt(square / static_cast<double>(w.size()) + eps);
    for (size_t i = 0; i < w.size(); ++i) v[r + i] = static_cast<float>(w[i] * (v[r + i] * scale));
  }
  return v;
}

std::vector<float> some_weight(int64_t width) {
  std::vector<float> w(width);
  for (int64_t i = 0; i < width; ++i) w[i] = 1 + 0.3f * std::sin(static_cast<float>(3 * i));
  return w;
}

struct Golden {
  Host host;
  std::vector<float> weight;
  HcBoundaryArgs args;

  Golden(const Safetensors& file, const std::string& size) {
    const int64_t rows = 9, width = testing::shape(file, size + ".fn")[1], hidden = width / 4;
    weight = some_weight(hidden);
    args.streams = host.rows(rows, width, floats(file, size + ".streams"));
    const std::vector<float> fn = floats(file, size + ".fn");
    args.fn = {.data = host.rows(24, width, fn).data, .dtype = DType::kF32, .out = 24, .in = width, .stride = width};
    args.base = host.vector(floats(file, size + ".base"));
    args.scale = host.vector(floats(file, size + ".scale"));
    args.norm_weight = host.vector(weight);
    args.streams_out = host.empty(rows, width, DType::kF32);
    args.post_out = {host.empty(rows, 4, DType::kF32).f32(), rows * 4};
    args.comb_out = {host.empty(rows, 16, DType::kF32).f32(), rows * 16};
    args.u = host.empty(rows, hidden, DType::kF32);
  }
};

TEST(HcBoundary, MappingAndCollapseMatchTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_hc.safetensors");
  for (const std::string size : {"tiny", "real"}) {
    Golden g(file, size);
    for (const std::string& name : variants(kHcBoundary, g.args)) {
      OpContext ctx = g.host.with("hc_boundary=" + name);
      ASSERT_TRUE(hc_boundary(ctx, g.args).is_ok());
      EXPECT_LE(rms_ratio(values(g.args.post_out), floats(file, size + ".post")), 1e-5) << name;
      EXPECT_LE(rms_ratio(values(g.args.comb_out), floats(file, size + ".comb")), 1e-5) << name;
      EXPECT_LE(rms_ratio(Host::values(g.args.u), rms_normed(floats(file, size + ".collapsed"), g.weight, 1e-5)), 3e-6)
          << name;
      EXPECT_EQ(Host::values(g.args.streams_out), floats(file, size + ".streams")) << name;
    }
  }
}

TEST(HcBoundary, NewStreamsMatchTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_hc.safetensors");
  for (const std::string size : {"tiny", "real"}) {
    Golden g(file, size);
    g.args.y = g.host.rows(9, g.args.u.width, floats(file, size + ".sublayer_out"));
    g.args.post = g.host.vector(floats(file, size + ".post"));
    g.args.comb = g.host.vector(floats(file, size + ".comb"));
    for (const std::string& name : variants(kHcBoundary, g.args)) {
      OpContext ctx = g.host.with("hc_boundary=" + name);
      ASSERT_TRUE(hc_boundary(ctx, g.args).is_ok());
      EXPECT_LE(rms_ratio(Host::values(g.args.streams_out), floats(file, size + ".streams_next")), 1e-6) << name;
    }
  }
}

// With comb = identity and post = 0 the streams pass through, so the head is their mean.
TEST(HcHead, MeanMatchesTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_hc.safetensors");
  Host host;
  std::vector<float> comb(9 * 16), weight = some_weight(64);
  for (int i = 0; i < 9 * 4; ++i) comb[i * 4 + i % 4] = 1;
  HcHeadArgs args{.streams = host.rows(9, 256, floats(file, "tiny.streams")),
                  .y = host.rows(9, 64, std::vector<float>(9 * 64, 7)),
                  .post = host.vector(std::vector<float>(36)),
                  .comb = host.vector(comb),
                  .norm_weight = host.vector(weight),
                  .streams_out = host.empty(9, 256, DType::kF32),
                  .h = host.empty(9, 64, DType::kF32)};
  for (const std::string& name : variants(kHcHead, args)) {
    OpContext ctx = host.with("hc_head=" + name);
    ASSERT_TRUE(hc_head(ctx, args).is_ok());
    EXPECT_LE(rms_ratio(Host::values(args.h), rms_normed(floats(file, "head.mean"), weight, 1e-5)), 3e-6) << name;
  }
}

// A case whose rows can be called apart: per-row arrays cut with the rows.
struct Batch {
  Host host;
  HcBoundaryArgs args;

  Batch(int64_t rows, int64_t hidden, int copies, DType dtype, int threads) : host(threads) {
    CaseBuilder b(*host.device, host.memory, 3);
    const int64_t width = copies * hidden, n = 2 * copies + copies * copies;
    args.streams = b.rows(rows, width, dtype), args.y = b.rows(rows, hidden, dtype);
    args.post = b.vector(rows * copies, 0.3, 1), args.comb = b.vector(rows * copies * copies, 0.1, 0.25);
    args.fn = b.weight(n, width, dtype, 0.05);
    args.base = b.vector(n, 0.5), args.scale = b.vector(3, 0.2, 1), args.norm_weight = b.vector(hidden, 0.2, 1);
    args.streams_out = b.empty_rows(rows, width, dtype), args.u = b.empty_rows(rows, hidden, dtype);
    args.post_out = b.empty<float>(rows * copies), args.comb_out = b.empty<float>(rows * copies * copies);
    args.copies = copies;
  }
  HcBoundaryArgs part(int64_t begin, int64_t count) {
    HcBoundaryArgs p = args;
    const int64_t S = args.copies, SS = S * S;
    p.streams = args.streams.slice(begin, count), p.y = args.y.slice(begin, count);
    p.post = {args.post.data + begin * S, count * S}, p.comb = {args.comb.data + begin * SS, count * SS};
    p.streams_out = host.empty(count, args.streams.width, args.streams.dtype),
    p.u = host.empty(count, args.u.width, args.u.dtype);
    p.post_out = {host.empty(count, S, DType::kF32).f32(), count * S},
    p.comb_out = {host.empty(count, SS, DType::kF32).f32(), count * SS};
    return p;
  }
};

std::vector<float> all_outputs(const HcBoundaryArgs& a, int64_t begin, int64_t count) {
  std::vector<float> all = Host::values(a.streams_out.slice(begin, count));
  for (float x : Host::values(a.u.slice(begin, count))) all.push_back(x);
  const int64_t S = a.copies;
  all.insert(all.end(), a.post_out.data + begin * S, a.post_out.data + (begin + count) * S);
  all.insert(all.end(), a.comb_out.data + begin * S * S, a.comb_out.data + (begin + count) * S * S);
  return all;
}

// Few rows are cut into pieces for the threads, many into blocks: no row may tell.
TEST(HcBoundary, ARowHasTheSameBitsAloneAndInCompanyOnAnyNumberOfThreads) {
  for (const auto& [hidden, copies, dtype] :
       {std::tuple{300, 4, DType::kBF16}, {131, 4, DType::kF32}, {40, 3, DType::kF32}}) {
    Batch one(90, hidden, copies, dtype, 1), three(90, hidden, copies, dtype, 3);
    for (const std::string& name : variants(kHcBoundary, one.args)) {
      OpContext ctx = one.host.with("hc_boundary=" + name), ctx3 = three.host.with("hc_boundary=" + name);
      ASSERT_TRUE(hc_boundary(ctx, one.args).is_ok());
      ASSERT_TRUE(hc_boundary(ctx3, three.args).is_ok());
      EXPECT_EQ(all_outputs(one.args, 0, 90), all_outputs(three.args, 0, 90)) << name;
      for (auto [begin, count] : {std::pair{0, 1}, {89, 1}, {17, 5}, {20, 33}}) {
        HcBoundaryArgs part = three.part(begin, count);
        ASSERT_TRUE(hc_boundary(ctx3, part).is_ok());
        EXPECT_EQ(all_outputs(part, 0, count), all_outputs(one.args, begin, count))
            << name << " rows " << begin << " + " << count;
      }
    }
  }
}

// X' over X, as the model calls it.
TEST(HcBoundary, WorksInPlace) {
  Batch apart(9, 100, 4, DType::kBF16, 2), inside(9, 100, 4, DType::kBF16, 2);
  inside.args.streams_out = inside.args.streams;
  const std::vector<float> before = Host::values(inside.args.streams);
  for (const std::string& name : variants(kHcBoundary, apart.args)) {
    write_floats(inside.args.streams.data, DType::kBF16, static_cast<int64_t>(before.size()), before.data());
    OpContext ctx = apart.host.with("hc_boundary=" + name), ctx2 = inside.host.with("hc_boundary=" + name);
    ASSERT_TRUE(hc_boundary(ctx, apart.args).is_ok());
    ASSERT_TRUE(hc_boundary(ctx2, inside.args).is_ok());
    EXPECT_EQ(all_outputs(apart.args, 0, 9), all_outputs(inside.args, 0, 9)) << name;
  }
}

}  // namespace

}  // namespace lathe
