#include "ops/kda_host.h"
#include "ops/kda_prefill/oracle.h"

// KDA against the reference set: the oracle's steps one by one, then the mixer of a small layer through every door.
namespace lathe {
namespace {

using namespace testing;

std::vector<double> part(const std::vector<float>& all, int64_t begin, int64_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

// Token t of head h of golden inputs [T, H, ...], which are activated but not normalised.
reference::KdaToken golden_token(const Safetensors& file, const std::string& prefix, int64_t t, int64_t h) {
  const auto shape_k = shape(file, prefix + "k"), shape_v = shape(file, prefix + "v");
  const int64_t H = shape_k[1], K = shape_k[2], V = shape_v[2];
  reference::KdaToken token{.q = part(floats(file, prefix + "q"), (t * H + h) * K, K),
                            .k = part(floats(file, prefix + "k"), (t * H + h) * K, K),
                            .v = part(floats(file, prefix + "v"), (t * H + h) * V, V),
                            .g = part(floats(file, prefix + "g"), (t * H + h) * K, K),
                            .b = floats(file, prefix + "beta")[t * H + h]};
  reference::kda_normalise(token.q);
  reference::kda_normalise(token.k);
  for (double& x : token.q) x /= std::sqrt(static_cast<double>(K));
  return token;
}

TEST(KdaGolden, RecurrenceFromAStateAndFromZero) {
  LATHE_GOLDEN(file, "golden/ops_kda.safetensors");
  for (const std::string tag : {"t1.", "t63.", "t65.", "d128_strong."})
    for (bool from_zero : {false, true}) {
      const auto k = shape(file, tag + "k");
      const int64_t T = k[0], H = k[1], K = k[2], V = shape(file, tag + "v")[2];
      const std::vector<float> s0 = floats(file, tag + "s0");
      std::vector<float> o(T * H * V), s(H * K * V);
      for (int64_t h = 0; h < H; ++h) {
        std::vector<double> S(V * K);
        for (int64_t j = 0; j < V && !from_zero; ++j)
          for (int64_t i = 0; i < K; ++i) S[j * K + i] = s0[(h * K + i) * V + j];
        for (int64_t t = 0; t < T; ++t) {
          const auto out = reference::kda_step(S, golden_token(file, tag, t, h));
          std::copy(out.begin(), out.end(), o.begin() + (t * H + h) * V);
        }
        for (int64_t j = 0; j < V; ++j)
          for (int64_t i = 0; i < K; ++i) s[(h * K + i) * V + j] = static_cast<float>(S[j * K + i]);
      }
      const std::string suffix = from_zero ? "_from_zero" : "";
      EXPECT_LE(rms_ratio(o, floats(file, tag + "o" + suffix)), 1e-6) << tag << suffix;
      EXPECT_LE(rms_ratio(s, floats(file, tag + "s" + suffix)), 1e-6) << tag << suffix;
    }
}

TEST(KdaGolden, ForgetGate) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  const std::vector<float> x = floats(file, "forget.x"), fa = floats(file, "forget.f_a_proj.weight"),
                           fb = floats(file, "forget.f_b_proj.weight"), bias = floats(file, "forget.dt_bias"),
                           a_log = floats(file, "forget.A_log");
  std::vector<float> bounded, free;
  for (int64_t t = 0; t < 13; ++t)
    for (int64_t c = 0; c < 64; ++c) {
      double f = 0;
      for (int64_t r = 0; r < 16; ++r) {
        double low = 0;
        for (int64_t i = 0; i < 64; ++i) low += double{x[t * 64 + i]} * fa[r * 64 + i];
        f += low * fb[c * 16 + r];
      }
      bounded.push_back(static_cast<float>(reference::kda_log_gate(f, bias[c], a_log[c / 16], -5)));
      free.push_back(static_cast<float>(reference::kda_log_gate(f, bias[c], a_log[c / 16], 0)));
    }
  EXPECT_LE(rms_ratio(bounded, floats(file, "forget.g")), 1e-6);
  EXPECT_LE(rms_ratio(free, floats(file, "forget.g_unbounded")), 1e-6);
}

TEST(KdaGolden, GatedNorm) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  Host host;
  KdaLayer layer{.norm_weight = host.vector(floats(file, "gated.w"))};
  layer.heads = 4, layer.v = 16, layer.norm_eps = 1e-5f;
  KdaRows in;
  in.gate = host.rows(5, 64, floats(file, "gated.gate"));
  const Rows y = host.empty(5, 64, DType::kF32);
  const std::vector<float> x = floats(file, "gated.x");
  for (int row = 0; row < 5; ++row)
    for (int h = 0; h < 4; ++h) reference::kda_store_output(part(x, row * 64 + h * 16, 16), in, layer, row, h, y);
  EXPECT_LE(rms_ratio(Host::values(y), floats(file, "gated.y")), 1e-6);
}

// The mixer of the tiny model: projections here, everything between them through the doors.
class TinyMixer {
 public:
  TinyMixer(Host& host, const Safetensors& file)
      : file_(file), sequence(host, {.heads = 4, .k = 16, .v = 16}, shape(file, "kda.x")[0]) {
    KdaLayer& layer = sequence.layer;
    std::vector<float> conv;
    for (const char* name : {"q", "k", "v"})
      for (float w : floats(file, std::string("kda.p.") + name + "_conv1d.weight")) conv.push_back(w);
    layer.conv_weight = host.vector(conv);
    layer.a_log = host.vector(floats(file, "kda.p.A_log"));
    layer.dt_bias = host.vector(floats(file, "kda.p.dt_bias"));
    layer.norm_weight = host.vector(floats(file, "kda.p.o_norm.weight"));
    const std::vector<float> x = floats(file, "kda.x");
    std::vector<float> qkv(sequence.tokens * 192);
    for (int n = 0; n < 3; ++n) {
      const std::vector<float> p = product(x, std::string(1, "qkv"[n]) + "_proj");
      for (int64_t t = 0; t < sequence.tokens; ++t) std::copy_n(&p[t * 64], 64, &qkv[t * 192 + n * 64]);
    }
    sequence.in = {.qkv = host.rows(sequence.tokens, 192, qkv),
                   .forget = host.rows(sequence.tokens, 64, product(product(x, "f_a_proj"), "f_b_proj")),
                   .beta = host.rows(sequence.tokens, 4, product(x, "b_proj")),
                   .gate = host.rows(sequence.tokens, 64, product(product(x, "g_a_proj"), "g_b_proj"))};
  }
  double error(const std::vector<float>& y) const { return rms_ratio(product(y, "o_proj"), floats(file_, "kda.y")); }

 private:
  // x Wᵀ
  std::vector<float> product(const std::vector<float>& x, const std::string& name) const {
    const std::vector<float> w = floats(file_, "kda.p." + name + ".weight");
    const auto size = shape(file_, "kda.p." + name + ".weight");
    const int64_t rows = static_cast<int64_t>(x.size()) / size[1];
    std::vector<float> y(rows * size[0]);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < size[0]; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < size[1]; ++i) sum += double{x[r * size[1] + i]} * w[o * size[1] + i];
        y[r * size[0] + o] = static_cast<float>(sum);
      }
    return y;
  }
  const Safetensors& file_;

 public:
  KdaSequence sequence;
};

TEST(KdaGolden, MixerThroughPrefillAndDecode) {
  LATHE_GOLDEN(file, "golden/ops_attn_tiny.safetensors");
  Host host;
  TinyMixer mixer(host, file);
  for (const std::string& name : variant_names(kKdaPrefill)) {
    EXPECT_LE(mixer.error(mixer.sequence.prefilled(host.with("kda_prefill=" + name)).y), 1e-5) << name;
    EXPECT_LE(mixer.error(mixer.sequence.prefilled(host.with("kda_prefill=" + name), {1, 2, 33, 64}).y), 1e-5)
        << name << ", cut";
  }
  for (const std::string& name : variant_names(kKdaDecode))
    EXPECT_LE(mixer.error(mixer.sequence.decoded(host.with("kda_decode=" + name)).y), 1e-5) << name;
}

}  // namespace
}  // namespace lathe
