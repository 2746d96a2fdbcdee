#include <gtest/gtest.h>

#include <cmath>

#include "ops/hc_boundary/hc_boundary.h"
#include "ops/hc_head/hc_head.h"
#include "ops/host.h"
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
      EXPECT_LE(rms_ratio(Host::values(g.args.u), rms_normed(floats(file, size + ".collapsed"), g.weight, 1e-5)), 3e-6) << name;
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

}  // namespace

}  // namespace lathe
