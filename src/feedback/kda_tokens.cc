#include "feedback/kda_tokens.h"

#include <cmath>

namespace lathe {

namespace {

// splitmix64 of a counter, so that a token depends on its number alone.
class Numbers {
 public:
  Numbers(uint64_t seed, int64_t token)
      : state_(seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(token) * 0xd1342543de82ef95ull) {}

  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
  // Four uniform numbers of 16 bits: a normal one but for its tails, in a few cycles.
  float normal() {
    const uint64_t x = next();
    const auto sum = static_cast<float>((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (sum * 0x1p-16f - 2) * 1.7320508f;
  }

 private:
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

void scale_to(float* x, double length) {
  double squares = 0;
  for (int i = 0; i < kKdaTokenDim; ++i) squares += double{x[i]} * x[i];
  const auto scale = static_cast<float>(length / std::sqrt(squares));
  for (int i = 0; i < kKdaTokenDim; ++i) x[i] *= scale;
}

}  // namespace

KdaTokens::KdaTokens(int capacity) : q(capacity * kKdaTokenDim), k(q.size()), g(q.size()), v(q.size()), b(capacity) {}

KdaTokenSource::KdaTokenSource(KdaTokenGates gates, uint64_t seed) : gates_(gates), seed_(seed) {
  for (int i = 0; i < kKdaTokenDim; ++i) {
    const bool lasting = gates == KdaTokenGates::kRetain && i % 2 == 0;
    decay_[i] = lasting ? static_cast<float>(std::pow(10.0, -3 - 2.0 * i / kKdaTokenDim)) : 0;
    key_size_[i] = lasting ? std::sqrt(decay_[i] / 1e-2f) : 1;
  }
}

void KdaTokenSource::make(int64_t first, int count, KdaTokens& out) const {
  for (int t = 0; t < count; ++t) {
    const int64_t at = int64_t{t} * kKdaTokenDim;
    make_one(first + t, &out.q[at], &out.k[at], &out.g[at], &out.v[at], &out.b[t]);
  }
}

void KdaTokenSource::make_one(int64_t token, float* q, float* k, float* g, float* v, float* b) const {
  Numbers numbers(seed_, token);
  const float lowest = gates_ == KdaTokenGates::kForget ? -5 : -3;
  for (int i = 0; i < kKdaTokenDim; ++i) {
    q[i] = numbers.normal();
    k[i] = numbers.normal() * key_size_[i];
    v[i] = numbers.normal();
    g[i] = decay_[i] > 0 ? -decay_[i] * numbers.uniform() : lowest * (0.01f + 0.99f * numbers.uniform());
  }
  scale_to(q, 1 / std::sqrt(static_cast<double>(kKdaTokenDim)));
  scale_to(k, 1);
  *b = 1 / (1 + std::exp(-numbers.normal()));
}

}  // namespace lathe
