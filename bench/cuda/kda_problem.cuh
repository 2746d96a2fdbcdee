#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ops/kda_prefill/kda_prefill_sm90.cuh"
#include "ops/kda_prefill/kda_sm90.cuh"

// Random KDA calls in device memory, and their results in doubles on the host.
namespace lathe::bench {

using bf16 = __nv_bfloat16;

inline void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

__device__ inline uint32_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  return static_cast<uint32_t>((x ^ (x >> 33)) >> 16);
}

template <class T>
__global__ void fill_normal(T* to, int64_t count, uint64_t seed, float spread, float mean) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const float u = (mixed(seed * 0x9e3779b97f4a7c15ull + 2 * i) + 1.0f) * 0x1p-32f;
    const float v = mixed(seed * 0x9e3779b97f4a7c15ull + 2 * i + 1) * 0x1p-32f;
    to[i] = static_cast<T>(mean + spread * sqrtf(-2 * logf(fminf(u, 1.0f))) * cospif(2 * v));
  }
}

// A device array with its copy on the host.
template <class T>
struct Buffer {
  T* data = nullptr;
  int64_t count = 0;
  std::vector<T> host;

  Buffer() = default;
  explicit Buffer(int64_t n) : count(n) { check(cudaMalloc(&data, std::max<int64_t>(n, 1) * sizeof(T)), "cudaMalloc"); }
  explicit Buffer(const std::vector<T>& values) : Buffer(static_cast<int64_t>(values.size())) {
    host = values;
    check(cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  Buffer(Buffer&& b) noexcept { *this = std::move(b); }
  Buffer& operator=(Buffer&& b) noexcept {
    std::swap(data, b.data), std::swap(count, b.count), host.swap(b.host);
    return *this;
  }
  ~Buffer() { cudaFree(data); }

  Buffer&& normal(float spread, float mean = 0) && {
    static uint64_t seed = 1;
    fill_normal<<<1024, 256>>>(data, count, seed++, spread, mean);
    return std::move(*this);
  }
  void poison() { check(cudaMemset(data, 0xff, count * sizeof(T)), "poison"); }
  void fetch() {
    host.resize(count);
    check(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "download");
  }
  void restore() { check(cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "upload"); }
};

inline double number(bf16 x) { return __bfloat162float(x); }
inline double number(float x) { return x; }
inline double rounded(double x) { return __bfloat162float(__float2bfloat16_rn(static_cast<float>(x))); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// RMS(error) / RMS(reference) of what is added.
struct Error {
  double error = 0, reference = 0;
  void add(double got, double want) { error += (got - want) * (got - want), reference += want * want; }
  double ratio() const { return std::sqrt(error / reference); }
};

enum class Gates { kForget, kRetain };
inline const char* name(Gates g) { return g == Gates::kForget ? "forget" : "retain"; }

struct Problem {
  static constexpr int kSize = sm90::kKdaSize;

  int heads, ring;
  std::vector<int32_t> start{0}, past, slots;
  Buffer<bf16> qkv, forget, beta, gate, y, conv;
  Buffer<float> conv_weight, a_log, dt_bias, norm_weight, state;
  Buffer<int32_t> d_start, d_past, d_slot, checkpoint_row, checkpoint_slot;

  // Sequence i takes slot (n - 1 - i), or none where `padded`.
  Problem(int heads, const std::vector<int>& lengths, std::vector<int32_t> positions, Gates gates, int ring = 3,
          int padded = -1, int spare_slots = 1)
      : heads(heads), ring(ring), past(std::move(positions)) {
    const int n = static_cast<int>(lengths.size());
    for (int i = 0; i < n; ++i)
      start.push_back(start.back() + lengths[i]), slots.push_back(i == padded ? -1 : n - 1 - i);
    const int64_t rows = start.back(), channels = 3 * kSize * int64_t{heads}, keys = kSize * int64_t{heads};
    const int64_t pool = n + spare_slots;
    qkv = Buffer<bf16>(rows * channels).normal(1), forget = Buffer<bf16>(rows * keys).normal(1);
    beta = Buffer<bf16>(rows * heads).normal(1), gate = Buffer<bf16>(rows * keys).normal(1);
    y = Buffer<bf16>(rows * keys);
    conv = Buffer<bf16>(pool * ring * channels).normal(1), state = Buffer<float>(pool * keys * kSize).normal(0.3);
    conv_weight = Buffer<float>(channels * 4).normal(0.5), a_log = Buffer<float>(heads).normal(0.2);
    dt_bias = gates == Gates::kForget ? Buffer<float>(keys).normal(1) : Buffer<float>(keys).normal(5, -8.5);
    norm_weight = Buffer<float>(kSize).normal(0.2, 1);
    d_start = Buffer<int32_t>(start), d_past = Buffer<int32_t>(past), d_slot = Buffer<int32_t>(slots);
  }

  int sequences() const { return static_cast<int>(past.size()); }
  int64_t rows() const { return start.back(); }

  sm90::KdaCall call() const {
    const int64_t keys = kSize * int64_t{heads};
    return {qkv.data,
            forget.data,
            beta.data,
            gate.data,
            3 * keys,
            keys,
            heads,
            keys,
            y.data,
            keys,
            conv_weight.data,
            a_log.data,
            dt_bias.data,
            norm_weight.data,
            state.data,
            conv.data,
            heads,
            ring,
            -5.0f,
            1e-5f};
  }
  sm90::KdaRuns runs() const {
    return {d_start.data, d_past.data,         d_slot.data,          sequences(),
            rows(),       checkpoint_row.data, checkpoint_slot.data, static_cast<int>(checkpoint_row.count)};
  }
  // Of the whole operator: rows in and out, state and convolution inputs both ways.
  double bytes() const {
    return static_cast<double>(rows()) * heads * 1538 + static_cast<double>(sequences()) * heads * (131072 + 4608);
  }

  void fetch_inputs() {
    for (auto* b : {&qkv, &forget, &beta, &gate, &conv}) b->fetch();
    for (auto* b : {&conv_weight, &a_log, &dt_bias, &norm_weight, &state}) b->fetch();
  }
  void restore_memory() { conv.restore(), state.restore(), y.poison(); }
};

// One head of one sequence, token by token, in doubles, from the host's copies.
class Oracle {
 public:
  Oracle(const Problem& p, int sequence, int head) : p_(p), sequence_(sequence), head_(head), S(kSize * kSize) {
    const int64_t slot = p.slots[sequence];
    if (p.past[sequence] > 0)
      for (int64_t i = 0; i < kSize * kSize; ++i) S[i] = p.state.host[(slot * p.heads + head) * kSize * kSize + i];
  }

  // y of the run's next token.
  std::vector<double> step() {
    const int64_t row = p_.start[sequence_] + token_, at = row * p_.heads + head_;
    std::vector<double> q(kSize), k(kSize), a(kSize), y(kSize);
    for (int i = 0; i < kSize; ++i) {
      q[i] = convolved(0, i), k[i] = convolved(1, i);
      const double rate = std::exp(static_cast<double>(p_.a_log.host[head_]));
      a[i] =
          std::exp(-5 * sigmoid(rate * (number(p_.forget.host[at * kSize + i]) + p_.dt_bias.host[head_ * kSize + i])));
    }
    normalise(q), normalise(k);
    const double b = rounded(sigmoid(number(p_.beta.host[at])));
    double squares = 0;
    for (int v = 0; v < kSize; ++v) {
      double* s = &S[v * kSize];
      double seen = 0, o = 0;
      for (int i = 0; i < kSize; ++i) seen += (s[i] *= a[i]) * k[i];
      const double d = b * (convolved(2, v) - seen);
      for (int i = 0; i < kSize; ++i) o += (s[i] += d * k[i]) * q[i];
      y[v] = rounded(o / std::sqrt(double{kSize}));
      squares += y[v] * y[v];
    }
    for (int v = 0; v < kSize; ++v)
      y[v] *=
          p_.norm_weight.host[v] / std::sqrt(squares / kSize + 1e-5) * sigmoid(number(p_.gate.host[at * kSize + v]));
    ++token_;
    return y;
  }

  static constexpr int kSize = Problem::kSize;

 private:
  static void normalise(std::vector<double>& x) {
    double sum = 1e-6;
    for (double v : x) sum += v * v;
    for (double& v : x) v /= std::sqrt(sum);
  }
  double input(int back, int64_t channel) const {
    const int64_t channels = 3 * kSize * int64_t{p_.heads}, position = p_.past[sequence_] + token_ - back;
    if (position < 0) return 0;
    if (token_ >= back) return number(p_.qkv.host[(p_.start[sequence_] + token_ - back) * channels + channel]);
    return number(p_.conv.host[(p_.slots[sequence_] * int64_t{p_.ring} + position % p_.ring) * channels + channel]);
  }
  double convolved(int part, int i) const {
    const int64_t channel = (int64_t{part} * p_.heads + head_) * kSize + i;
    double sum = 0;
    for (int back = 0; back < 4; ++back) sum += p_.conv_weight.host[channel * 4 + 3 - back] * input(back, channel);
    return rounded(sum * sigmoid(sum));
  }

  const Problem& p_;
  int sequence_, head_;
  int64_t token_ = 0;

 public:
  std::vector<double> S;
};

}  // namespace lathe::bench
