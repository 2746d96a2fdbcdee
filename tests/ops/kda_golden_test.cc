#include "base/cpu_features.h"
#include "ops/kda_host.h"
#include "ops/kda_prefill/head_run.h"
#include "ops/kda_prefill/oracle.h"
#include "ops/kda_scan/span_map.h"

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

// Golden inputs of one head in a block, normalised.
void fill_block(const Safetensors& file, const std::string& tag, int64_t head, int64_t first, int n,
                const KdaHeadWork& work) {
  for (int t = 0; t < n; ++t) {
    const reference::KdaToken token = golden_token(file, tag, first + t, head);
    const KdaSizes& s = work.sizes;
    std::fill_n(work.block.v + t * s.vp, s.vp, 0.0f);
    for (float* row : {work.block.q, work.block.k, work.block.g}) std::fill_n(row + t * s.kp, s.kp, 0.0f);
    std::copy(token.q.begin(), token.q.end(), work.block.q + t * s.kp);
    std::copy(token.k.begin(), token.k.end(), work.block.k + t * s.kp);
    std::copy(token.g.begin(), token.g.end(), work.block.g + t * s.kp);
    std::copy(token.v.begin(), token.v.end(), work.block.v + t * s.vp);
    work.block.b[t] = static_cast<float>(token.b);
  }
}

std::vector<const KdaSteps*> all_steps() {
  std::vector<const KdaSteps*> steps = {&kda_steps_portable()};
  if (cpu_features().avx2) steps.push_back(&kda_steps_avx2());
  if (cpu_features().avx512) steps.push_back(&kda_steps_avx512());
  return steps;
}

KdaLayer layer_of(int64_t k, int64_t v) {
  KdaLayer layer;
  layer.heads = 1, layer.k = static_cast<int>(k), layer.v = static_cast<int>(v), layer.width = 1, layer.bound = -5;
  return layer;
}

// A head's state [V, K] as a tile and back.
std::vector<float> tile_of(const KdaHeadWork& work, const std::vector<float>& state) {
  std::vector<float> tile(work.blocks() * work.block_floats());
  for (int b = 0; b < work.blocks(); ++b)
    work.steps.load_block(work.sizes, state.data(), b * work.steps.columns, &tile[b * work.block_floats()]);
  return tile;
}
std::vector<float> state_of(const KdaHeadWork& work, const std::vector<float>& tile) {
  std::vector<float> state(int64_t{work.sizes.v} * work.sizes.k);
  for (int b = 0; b < work.blocks(); ++b)
    work.steps.store_block(work.sizes, &tile[b * work.block_floats()], b * work.steps.columns, state.data());
  return state;
}

// [K, V] of a fixture to our [V, K].
std::vector<float> transposed(const float* s, int64_t K, int64_t V) {
  std::vector<float> out(K * V);
  for (int64_t i = 0; i < K; ++i)
    for (int64_t j = 0; j < V; ++j) out[j * K + i] = s[i * V + j];
  return out;
}

TEST(KdaGolden, FastFormsOnActivatedTokens) {
  LATHE_GOLDEN(file, "golden/ops_kda.safetensors");
  for (const KdaSteps* steps : all_steps())
    for (KdaForm form : {KdaForm::kSequential, KdaForm::kChunked})
      for (const std::string tag : {"t1.", "t63.", "t64.", "t65.", "t150.", "d128.", "d128_strong."}) {
        const auto k = shape(file, tag + "k");
        const int64_t T = k[0], H = k[1], K = k[2], V = shape(file, tag + "v")[2];
        const std::vector<float> s0 = floats(file, tag + "s0"), s1 = floats(file, tag + "s"),
                                 all_o = floats(file, tag + "o");
        Host host(1);
        const KdaLayer layer = layer_of(K, V);
        KdaHeadRun run(*steps, form, layer, host.scratch);
        for (int64_t h = 0; h < H; ++h) {
          std::vector<float> tile = tile_of(run.work, transposed(&s0[h * K * V], K, V)), o, golden_o;
          for (int64_t t = 0; t < T; t += kKdaChunk) {
            const int n = static_cast<int>(std::min<int64_t>(kKdaChunk, T - t));
            fill_block(file, tag, h, t, n, run.work);
            run.prepare(n);
            for (int b = 0; b < run.work.blocks(); ++b) run.advance(b, &tile[b * run.work.block_floats()], run.o());
            for (int i = 0; i < n; ++i)
              o.insert(o.end(), run.o() + i * run.work.sizes.vp, run.o() + i * run.work.sizes.vp + V);
          }
          for (int64_t t = 0; t < T; ++t)
            golden_o.insert(golden_o.end(), &all_o[(t * H + h) * V], &all_o[(t * H + h) * V] + V);
          EXPECT_LE(rms_ratio(o, golden_o), 1e-6) << tag << steps->columns;
          EXPECT_LE(rms_ratio(state_of(run.work, tile), transposed(&s1[h * K * V], K, V)), 1e-6)
              << tag << steps->columns;
        }
      }
}

TEST(KdaGolden, MapOfASpan) {
  LATHE_GOLDEN(file, "golden/ops_kda.safetensors");
  for (const KdaSteps* steps : all_steps())
    for (const std::string tag : {"t65.", "d128."}) {
      const auto k = shape(file, tag + "k");
      const int64_t T = k[0], H = k[1], K = k[2];
      const std::vector<float> M = floats(file, tag + "affine_M"), N = floats(file, tag + "affine_H");
      for (int64_t h = 0; h < H; ++h) {
        Host host(1);
        const KdaLayer layer = layer_of(K, K);
        KdaHeadRun run(*steps, KdaForm::kChunked, layer, host.scratch);
        KdaSpanMap map(run, KdaMapForm::kIncrement, host.scratch);
        map.clear();
        for (int64_t t = 0; t < T; t += kKdaChunk) {
          const int n = static_cast<int>(std::min<int64_t>(kKdaChunk, T - t));
          fill_block(file, tag, h, t, n, run.work);
          run.prepare(n);
          map.append(run);
        }
        std::vector<float> a(KdaSpanMap::a_floats(run)),
            b(map.b(), map.b() + run.work.blocks() * run.work.block_floats());
        map.store_a(a.data());
        EXPECT_LE(rms_ratio(a, transposed(&M[h * K * K], K, K)), 1e-6) << tag;
        EXPECT_LE(rms_ratio(state_of(run.work, b), transposed(&N[h * K * K], K, K)), 1e-6) << tag;
      }
    }
}

TEST(KdaGolden, FourThousandTokensOfSlowDecay) {
  LATHE_GOLDEN(file, "golden/ops_kda_long.safetensors");
  const std::vector<float> q = floats(file, "q"), k = floats(file, "k"), g = floats(file, "g"), v = floats(file, "v"),
                           beta = floats(file, "beta");
  const int64_t T = shape(file, "k")[0], K = shape(file, "k")[2];
  for (const KdaSteps* steps : all_steps())
    for (KdaForm form : {KdaForm::kSequential, KdaForm::kChunked}) {
      Host host(1);
      const KdaLayer layer = layer_of(K, K);
      KdaHeadRun run(*steps, form, layer, host.scratch);
      std::vector<float> tile(run.work.blocks() * run.work.block_floats()), o;
      const KdaSizes& s = run.work.sizes;
      for (int64_t t = 0; t < T; t += kKdaChunk) {
        for (int i = 0; i < kKdaChunk; ++i) {
          std::vector<double> query = part(q, (t + i) * K, K), key = part(k, (t + i) * K, K);
          reference::kda_normalise(query), reference::kda_normalise(key);
          for (double& x : query) x /= std::sqrt(static_cast<double>(K));
          std::copy(query.begin(), query.end(), run.work.block.q + i * s.kp);
          std::copy(key.begin(), key.end(), run.work.block.k + i * s.kp);
          std::copy_n(&g[(t + i) * K], K, run.work.block.g + i * s.kp);
          std::fill_n(run.work.block.v + i * s.vp, s.vp, 0.0f);
          std::copy_n(&v[(t + i) * K], K, run.work.block.v + i * s.vp);
          run.work.block.b[i] = beta[t + i];
        }
        run.prepare(kKdaChunk);
        for (int b = 0; b < run.work.blocks(); ++b) run.advance(b, &tile[b * run.work.block_floats()], run.o());
        for (int i = 7; i < kKdaChunk; i += 8) o.insert(o.end(), run.o() + i * s.vp, run.o() + i * s.vp + K);
      }
      EXPECT_LE(rms_ratio(o, floats(file, "o_every_8")), 3e-6);
      EXPECT_LE(rms_ratio(state_of(run.work, tile), transposed(floats(file, "s").data(), K, K)), 3e-6);
    }
}

// Channels of a convolution pass through v, which isn't normalised: a head with one key channel and 22 value channels.
TEST(KdaGolden, ConvolutionFromZeroAndFromAState) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  const std::vector<float> w = floats(file, "conv.w");
  for (const KdaSteps* steps : all_steps())
    for (bool from_state : {false, true}) {
      const std::string x_name = from_state ? "conv.steps_x" : "conv.x",
                        y_name = from_state ? "conv.steps_y" : "conv.y";
      const auto size = shape(file, x_name);  // [batch, channels, tokens]
      const int64_t channels = size[1], tokens = size[2];
      const std::vector<float> x = floats(file, x_name), y = floats(file, y_name),
                               history = floats(file, "conv.state0");
      for (int64_t n = 0; n < size[0]; ++n) {
        Host host(1);
        KdaLayer layer = layer_of(1, channels);
        layer.width = 4, layer.bound = -5;
        std::vector<float> weights(2 * 4);
        weights.insert(weights.end(), w.begin(), w.end());
        layer.conv_weight = host.vector(weights), layer.a_log = host.vector({0}), layer.dt_bias = host.vector({0});
        std::vector<float> raw, old_raw;
        const auto append = [&](std::vector<float>& rows, const std::vector<float>& from, int64_t columns, int64_t t) {
          rows.insert(rows.end(), 2, 1.0f);
          for (int64_t c = 0; c < channels; ++c) rows.push_back(from[(n * channels + c) * columns + t]);
        };
        for (int64_t t = 0; t < tokens; ++t) append(raw, x, tokens, t);
        for (int64_t t = 1; t < 4; ++t) append(old_raw, history, 4, t);
        const KdaRows in{host.rows(tokens, channels + 2, raw), host.rows(tokens, 1, std::vector<float>(tokens)),
                         host.rows(tokens, 1, std::vector<float>(tokens)),
                         host.rows(tokens, channels, std::vector<float>(tokens * channels))};
        KdaMemory memory{.ring = 3};
        memory.conv = {.data = host.rows(3, channels + 2, old_raw).data, .items = 1, .item_size = 3 * (channels + 2)};
        KdaHeadWork work(*steps, layer, kKdaChunk, host.scratch);
        work.take_head(0);
        work.activate(in, memory, {.slot = 0, .begin = 0, .end = tokens, .past = from_state ? 3 : 0}, 0,
                      static_cast<int>(tokens));
        std::vector<float> got, want;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t c = 0; c < channels; ++c)
            got.push_back(work.block.v[t * work.sizes.vp + c]), want.push_back(y[(n * channels + c) * tokens + t]);
        EXPECT_LE(rms_ratio(got, want), 1e-6) << steps->columns;
      }
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

// Against the oracle's gate, relative to each value: a retaining channel's decay is small, and must be as exact as any.
TEST(KdaSteps, GateIsExactAtEverySize) {
  std::vector<float> f;
  for (int i = 0; i < 1024; ++i) f.push_back(-30 + 60 * i / 1024.0f);
  for (const KdaSteps* steps : all_steps())
    for (float bound : {-5.0f, -1.0f, 0.0f})
      for (float a_log : {-1.0f, 0.0f, 0.5f}) {
        Host host(1);
        KdaLayer layer = layer_of(1024, 1);
        layer.bound = bound, layer.conv_weight = host.vector(std::vector<float>(2049, 1)),
        layer.a_log = host.vector({a_log});
        layer.dt_bias = host.vector(std::vector<float>(1024, 0.25f));
        const KdaRows in{host.rows(1, 2049, std::vector<float>(2049, 1)), host.rows(1, 1024, f), host.rows(1, 1, {0}),
                         host.rows(1, 1, {0})};
        KdaHeadWork work(*steps, layer, 1, host.scratch);
        work.take_head(0);
        work.activate(in, {}, {.slot = 0, .begin = 0, .end = 1, .past = 0}, 0, 1);
        for (int i = 0; i < 1024; ++i) {
          const double g = reference::kda_log_gate(f[i], 0.25, a_log, bound);
          const double x = std::exp(a_log) * (f[i] + 0.25);  // a rounding of x is a relative error of exp(x)
          EXPECT_NEAR(work.block.g[i], g, (2e-7 + 1.2e-7 * std::fabs(x)) * std::fabs(g) + 1e-36)
              << f[i] << " " << bound << " " << a_log;
        }
      }
}

TEST(KdaGolden, GatedNorm) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  Host host(1);
  KdaLayer layer{.norm_weight = host.vector(floats(file, "gated.w"))};
  layer.heads = 4, layer.v = 16, layer.norm_eps = 1e-5f;
  KdaRows in;
  in.gate = host.rows(5, 64, floats(file, "gated.gate"));
  const Rows y = host.empty(5, 64, DType::kF32);
  const std::vector<float> x = floats(file, "gated.x");
  for (int row = 0; row < 5; ++row)
    for (int h = 0; h < 4; ++h) reference::kda_store_output(part(x, row * 64 + h * 16, 16), in, layer, row, h, y);
  EXPECT_LE(rms_ratio(Host::values(y), floats(file, "gated.y")), 1e-6);
  for (const KdaSteps* steps : all_steps()) {
    for (int row = 0; row < 5; ++row)
      for (int h = 0; h < 4; ++h)
        steps->gated_norm(16, DType::kF32, &x[row * 64 + h * 16], in.gate.f32(row) + h * 16, layer.norm_weight.data,
                          1e-5f, y.f32(row) + h * 16);
    EXPECT_LE(rms_ratio(Host::values(y), floats(file, "gated.y")), 1e-6) << steps->columns;
  }
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
  Host host(1);
  TinyMixer mixer(host, file);
  for (const std::string& name : variant_names(kKdaPrefill)) {
    EXPECT_LE(mixer.error(mixer.sequence.prefilled(host.with("kda_prefill=" + name)).y), 1e-5) << name;
    EXPECT_LE(mixer.error(mixer.sequence.prefilled(host.with("kda_prefill=" + name), {1, 2, 33, 64}).y), 1e-5)
        << name << ", cut";
  }
  for (const std::string& name : variant_names(kKdaDecode))
    EXPECT_LE(mixer.error(mixer.sequence.decoded(host.with("kda_decode=" + name)).y), 1e-5) << name;
}

TEST(KdaGolden, MixerThroughReplayAndScan) {
  LATHE_GOLDEN(file, "golden/ops_attn_tiny.safetensors");
  Host host(1);
  TinyMixer mixer(host, file);
  for (const std::string& name : variant_names(kKdaReplay))
    EXPECT_LE(mixer.error(mixer.sequence.replayed(host.with("kda_replay=" + name), 16, 1).y), 1e-5) << name;
  for (int segments : {1, 2, 5, 80})
    for (const std::string name : {"increment", "reference"})
      EXPECT_LE(mixer.error(mixer.sequence.scanned(host.with("kda_scan=" + name), segments).y), 1e-5)
          << name << " x" << segments;
}

}  // namespace
}  // namespace lathe
