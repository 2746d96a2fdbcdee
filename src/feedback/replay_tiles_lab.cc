#include "feedback/replay_tiles_lab.h"

#include <fmt/format.h>
#include <time.h>

#include <cmath>

#include "feedback/random_stream.h"

namespace lathe {

namespace {

constexpr int kDim = ReplayTilesLab::kDim, kRecords = ReplayTilesLab::kRecords;
constexpr float kBound = -0.125f, kEps = 1e-6f;

int64_t thread_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

template <bool kDivide>
float sigmoid(float x) {
  const float e = 1 + std::exp(-x);
  if (kDivide) return 1 / e;
  // The reciprocal's seed from the exponent, and three steps of Newton: no division.
  float r = __builtin_bit_cast(float, 0x7ef311c7u - __builtin_bit_cast(uint32_t, e));
  for (int i = 0; i < 3; ++i) r *= 2 - e * r;
  return r;
}

template <bool kDivide>
void normalise(const float* x, float scale, float* out) {
  float squares = 0;
  for (int i = 0; i < kDim; ++i) {
    out[i] = x[i] * sigmoid<kDivide>(x[i]);  // silu
    squares += out[i] * out[i];
  }
  const float length = std::sqrt(squares + kEps);
  const float inverse = 1 / length;
  for (int i = 0; i < kDim; ++i) out[i] = kDivide ? out[i] / length * scale : out[i] * (inverse * scale);
}

// Four sums abreast, as every form adds them.
float dot(const float* a, const float* b) {
  float sum[16] = {};
  for (int i = 0; i < kDim; i += 16)
    for (int j = 0; j < 16; ++j) sum[j] += a[i + j] * b[i + j];
  float all = 0;
  for (float s : sum) all += s;
  return all;
}

}  // namespace

struct ReplayTilesLab::Head {
  const float *state, *key, *gate, *d, *decayed_key, *q, *k, *v, *forget, *out_gate;
  float beta;
  float *new_key, *new_d, *o;
};

namespace {

// A token as its tile sees it.
struct Token {
  float q[kDim], k[kDim], running[kDim], decay[kDim];  // running log gate G, exp(G)
  float aq[kDim], ak[kDim];                            // decayed query and key
  float weight_q[kRecords], weight_k[kRecords];        // of each record
  float b, kq;
};

template <bool kDivide, bool kDecayRecords>
struct Step {
  template <class Head>
  static void activate(const Head& h, Token& t) {
    normalise<kDivide>(h.q, 0.088388348f, t.q);  // K^-1/2
    normalise<kDivide>(h.k, 1, t.k);
    t.b = sigmoid<kDivide>(h.beta);
    const float* last = h.gate + (kRecords - 1) * kDim;
    for (int i = 0; i < kDim; ++i) t.running[i] = last[i] + kBound * sigmoid<kDivide>(h.forget[i]);
    for (int i = 0; i < kDim; ++i) t.decay[i] = std::exp(t.running[i]);
    for (int i = 0; i < kDim; ++i) t.aq[i] = t.q[i] * t.decay[i], t.ak[i] = t.k[i] * t.decay[i];
    t.kq = dot(t.k, t.q);
  }

  // k·key and q·key of each record, decayed from where it was written to this token.
  template <class Head>
  static void weigh_records(const Head& h, Token& t) {
    float key[kDim];
    for (int j = 0; j < kRecords; ++j) {
      if constexpr (!kDecayRecords) {
        t.weight_k[j] = dot(t.ak, h.decayed_key + j * kDim), t.weight_q[j] = dot(t.aq, h.decayed_key + j * kDim);
        continue;
      }
      const float *raw = h.key + j * kDim, *gate = h.gate + j * kDim;
      for (int i = 0; i < kDim; ++i)
        key[i] = kDivide ? raw[i] * t.decay[i] / std::exp(gate[i]) : raw[i] * t.decay[i] * std::exp(-gate[i]);
      t.weight_k[j] = dot(t.k, key), t.weight_q[j] = dot(t.q, key);
    }
  }

  template <class Head>
  static void rows(const Head& h, const Token& t, int begin, int end) {
    for (int r = begin; r < end; ++r) {
      const float* row = h.state + r * kDim;
      float seen = dot(row, t.ak), out = dot(row, t.aq);
      for (int j = 0; j < kRecords; ++j)
        seen += t.weight_k[j] * h.d[j * kDim + r], out += t.weight_q[j] * h.d[j * kDim + r];
      const float v = h.v[r] * sigmoid<kDivide>(h.v[r]), d = t.b * (v - seen);
      h.new_d[r] = d;
      h.o[r] = (out + d * t.kq) * sigmoid<kDivide>(h.out_gate[r]);
    }
  }

  template <class Head>
  static void head(const Head& h, int tiles) {
    Token t;
    for (int tile = 0; tile < tiles; ++tile) {
      activate(h, t);
      weigh_records(h, t);
      rows(h, t, tile * kDim / tiles, (tile + 1) * kDim / tiles);
    }
    for (int i = 0; i < kDim; ++i) h.new_key[i] = kDecayRecords ? t.k[i] : t.k[i] * std::exp(-t.running[i]);
  }
};

template <class Head>
void run_head(const ReplayTilesOptions& o, const Head& h) {
  if (o.divide)
    o.decay_records ? Step<true, true>::head(h, o.v_tiles) : Step<true, false>::head(h, o.v_tiles);
  else
    o.decay_records ? Step<false, true>::head(h, o.v_tiles) : Step<false, false>::head(h, o.v_tiles);
}

}  // namespace

std::string ReplayTilesOptions::name() const {
  return fmt::format("{} tile{} of V{}{}", v_tiles, v_tiles == 1 ? "" : "s", divide ? ", divisions" : "",
                     decay_records ? ", records decayed in each step" : "");
}

ReplayTilesWork replay_tiles_work(const ReplayTilesOptions& o) {
  const int64_t k = kDim, v = kDim, r = kRecords;
  const int64_t tiles = o.v_tiles;
  ReplayTilesWork w;
  w.exponentials = tiles * (4 * k + 1) + 2 * v;  // silu of q, k; gate; exp(G); beta; silu of v, gate
  w.divisions = o.divide ? tiles * (5 * k + 1) + 2 * v : 2 * tiles;  // sigmoids, q/|q|, k/|k|
  w.products = tiles * 12 * k + tiles * r * 2 * k + v * (2 * k + 2 * r + 4);
  if (o.decay_records) {
    w.exponentials += tiles * r * k, w.products += tiles * r * 2 * k;
    if (o.divide) w.divisions += tiles * r * k;
  } else {
    w.exponentials += k, w.products += k;
  }
  const int64_t gates = o.decay_records ? r * k : k;  // decayed records need the last gate alone
  w.bytes = 4 * (v * k + r * (k + v) + gates + 3 * k + 2 * v + 1 + k + 2 * v);
  return w;
}

ReplayTilesLab::ReplayTilesLab(int heads, uint64_t seed) : heads_(heads) {
  RandomStream random(seed);
  const auto fill = [&](std::vector<float>& x, int64_t count, double spread) {
    x.resize(count);
    for (float& value : x) value = static_cast<float>(spread * 3.46 * (random.uniform() - 0.5));
  };
  const int64_t rows = int64_t{heads} * kDim, records = rows * kRecords;
  fill(state_, rows * kDim, 0.3), fill(key_, records, 0.088), fill(d_, records, 0.5);
  fill(q_, rows, 1), fill(k_, rows, 1), fill(v_, rows, 1), fill(forget_, rows, 1), fill(out_gate_, rows, 1);
  fill(beta_, heads, 1);
  gate_.resize(records), decayed_key_.resize(records);
  for (int64_t h = 0; h < heads; ++h)
    for (int i = 0; i < kDim; ++i) {
      double sum = 0;
      for (int j = 0; j < kRecords; ++j) {
        const int64_t at = (h * kRecords + j) * kDim + i;
        gate_[at] = static_cast<float>(sum -= 0.125 * random.uniform());
        decayed_key_[at] = key_[at] * std::exp(-gate_[at]);
      }
    }
  new_key_.resize(rows), new_d_.resize(rows);
}

ReplayTilesLab::Head ReplayTilesLab::head(int h) {
  const int64_t row = int64_t{h} * kDim, ring = row * kRecords;
  return {&state_[row * kDim], &key_[ring],     &gate_[ring], &d_[ring],
          &decayed_key_[ring], &q_[row],        &k_[row],     &v_[row],
          &forget_[row],       &out_gate_[row], beta_[h],     &new_key_[row],
          &new_d_[row],        nullptr};
}

int64_t ReplayTilesLab::step(const ReplayTilesOptions& options, std::vector<float>& o) {
  o.resize(int64_t{heads_} * kDim);
  const int64_t begin = thread_ns();
  for (int h = 0; h < heads_; ++h) {
    Head one = head(h);
    one.o = &o[int64_t{h} * kDim];
    run_head(options, one);
  }
  return thread_ns() - begin;
}

int64_t ReplayTilesLab::step_one_head(const ReplayTilesOptions& options, int times, std::vector<float>& o) {
  o.resize(kDim);
  Head one = head(0);
  one.o = o.data();
  const int64_t begin = thread_ns();
  for (int i = 0; i < times; ++i) run_head(options, one);
  return thread_ns() - begin;
}

int64_t ReplayTilesLab::read_states(float& sum) const {
  float sums[32] = {};
  const int64_t begin = thread_ns();
  for (size_t at = 0; at < state_.size(); at += 32)
    for (size_t j = 0; j < 32; ++j) sums[j] += state_[at + j];
  const int64_t took = thread_ns() - begin;
  for (float s : sums) sum += s;
  return took;
}

std::vector<double> ReplayTilesLab::oracle() const {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<double> out;
  for (int h = 0; h < heads_; ++h) {
    const int64_t row = int64_t{h} * kDim, ring = row * kRecords;
    std::vector<double> q(kDim), k(kDim), decay(kDim),
        S(state_.begin() + row * kDim, state_.begin() + (row + kDim) * kDim);
    double qq = kEps, kk = kEps;
    for (int i = 0; i < kDim; ++i) {
      q[i] = q_[row + i] * sigmoid(q_[row + i]), k[i] = k_[row + i] * sigmoid(k_[row + i]);
      qq += q[i] * q[i], kk += k[i] * k[i];
      decay[i] = std::exp(gate_[ring + (kRecords - 1) * kDim + i] + kBound * sigmoid(forget_[row + i]));
    }
    for (int i = 0; i < kDim; ++i) q[i] /= std::sqrt(qq) * std::sqrt(kDim), k[i] /= std::sqrt(kk);
    for (int r = 0; r < kDim; ++r)
      for (int i = 0; i < kDim; ++i) {
        for (int j = 0; j < kRecords; ++j)
          S[r * kDim + i] += double{d_[ring + j * kDim + r]} * key_[ring + j * kDim + i] *
                             std::exp(-double{gate_[ring + j * kDim + i]});
        S[r * kDim + i] *= decay[i];
      }
    for (int r = 0; r < kDim; ++r) {
      double seen = 0, o = 0, kq = 0;
      for (int i = 0; i < kDim; ++i) seen += S[r * kDim + i] * k[i], o += S[r * kDim + i] * q[i], kq += k[i] * q[i];
      const double v = v_[row + r] * sigmoid(v_[row + r]), d = sigmoid(beta_[h]) * (v - seen);
      out.push_back((o + d * kq) * sigmoid(out_gate_[row + r]));
    }
  }
  return out;
}

}  // namespace lathe
