#include "ops/kda_prefill/oracle.h"

#include <cmath>
#include <cstring>

#include "ops/element.h"

namespace lathe::reference {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Channel c of the convolution after SiLU, at `position`.
double convolved(const KdaRows& in, const KdaLayer& layer, int64_t row, int64_t c, const KdaMemory& memory,
                 int64_t slot, int64_t position) {
  const float* w = &layer.conv_weight[c * layer.width];
  double sum = w[layer.width - 1] * load(in.qkv, row, c);
  for (int back = 1; back < layer.width && back <= position; ++back)
    sum += w[layer.width - 1 - back] * load(memory.conv, slot, (position - back) % memory.ring * layer.channels() + c);
  return rounded(sum * sigmoid(sum), in.qkv.dtype);
}

}  // namespace

double kda_log_gate(double f, double dt_bias, double a_log, double bound) {
  const double rate = std::exp(a_log);
  return bound < 0 ? bound * sigmoid(rate * (f + dt_bias)) : -rate * softplus(f + dt_bias);
}

void kda_normalise(std::vector<double>& x) {
  double sum = 1e-6;
  for (double v : x) sum += v * v;
  for (double& v : x) v /= std::sqrt(sum);
}

KdaToken kda_token(const KdaRows& in, const KdaLayer& layer, int64_t row, int head, const KdaMemory& memory,
                   int64_t slot, int64_t position) {
  const int64_t k = layer.k, v = layer.v, all_keys = layer.heads * k;
  KdaToken t{std::vector<double>(k), std::vector<double>(k), std::vector<double>(v), std::vector<double>(k), 0};
  for (int64_t i = 0; i < k; ++i) {
    t.q[i] = convolved(in, layer, row, head * k + i, memory, slot, position);
    t.k[i] = convolved(in, layer, row, all_keys + head * k + i, memory, slot, position);
    t.g[i] =
        kda_log_gate(load(in.forget, row, head * k + i), layer.dt_bias[head * k + i], layer.a_log[head], layer.bound);
  }
  for (int64_t j = 0; j < v; ++j)
    t.v[j] = convolved(in, layer, row, 2 * all_keys + head * v + j, memory, slot, position);
  kda_normalise(t.q);
  kda_normalise(t.k);
  for (double& x : t.q) x /= std::sqrt(static_cast<double>(k));
  t.b = rounded(sigmoid(load(in.beta, row, head)), in.beta.dtype);
  return t;
}

void kda_push(const KdaRows& in, int64_t row, const KdaMemory& memory, int64_t slot, int64_t position) {
  if (memory.ring == 0) return;
  const int64_t bytes = in.qkv.width * dtype_bytes(in.qkv.dtype);
  std::memcpy(static_cast<char*>(memory.conv.at(slot)) + position % memory.ring * bytes, in.qkv.at(row), bytes);
}

std::vector<std::vector<double>> kda_load_states(const KdaLayer& layer, const KdaMemory& memory, int64_t slot,
                                                 int64_t position) {
  const int64_t cells = int64_t{layer.v} * layer.k;
  std::vector<std::vector<double>> states(layer.heads, std::vector<double>(cells));
  if (position > 0)
    for (int h = 0; h < layer.heads; ++h)
      for (int64_t i = 0; i < cells; ++i) states[h][i] = load(memory.state, slot, h * cells + i);
  return states;
}

void kda_store_states(const std::vector<std::vector<double>>& states, const KdaMemory& memory, int64_t slot) {
  int64_t at = 0;
  for (const auto& S : states)
    for (double x : S) store(memory.state, slot, at++, x);
}

std::vector<double> kda_step(std::vector<double>& S, const KdaToken& t) {
  const size_t K = t.k.size(), V = t.v.size();
  std::vector<double> a(K), o(V);
  for (size_t i = 0; i < K; ++i) a[i] = std::exp(t.g[i]);
  for (size_t j = 0; j < V; ++j) {
    double* row = &S[j * K];
    double seen = 0;  // (S·Diag(a)·k)_j
    for (size_t i = 0; i < K; ++i) seen += row[i] * a[i] * t.k[i];
    const double d = t.b * (t.v[j] - seen);
    for (size_t i = 0; i < K; ++i) o[j] += (row[i] = row[i] * a[i] + d * t.k[i]) * t.q[i];
  }
  return o;
}

void kda_store_output(const std::vector<double>& o, const KdaRows& in, const KdaLayer& layer, int64_t row, int head,
                      const Rows& y) {
  const int64_t v = layer.v;
  double squares = 0;
  for (double x : o) squares += rounded(x, y.dtype) * rounded(x, y.dtype);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(v) + layer.norm_eps);
  for (int64_t j = 0; j < v; ++j)
    store(y, row, head * v + j,
          layer.norm_weight[j] * rounded(o[j], y.dtype) * scale * sigmoid(load(in.gate, row, head * v + j)));
}

void kda_zero_rows(const Rows& y, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) std::memset(y.at(r), 0, y.width * dtype_bytes(y.dtype));
}

}  // namespace lathe::reference
