#include "feedback/kda_chain.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe {

namespace {

constexpr int kDim = kKdaTokenDim, kTokens = KdaChunkMap::kTokens;

// Drops the last bits of the mantissa, to nearest even.
float shortened(float x, int bits) {
  const auto word = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((word + (word >> bits & 1) + (1u << (bits - 1)) - 1) & ~0u << bits);
}
float truncated(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0u << 13); }

float operand(KdaOperands operands, float x) {
  switch (operands) {
    case KdaOperands::kTf32:
    case KdaOperands::kTf32x3:
      return shortened(x, 13);
    case KdaOperands::kTf32Truncated:
      return truncated(x);
    case KdaOperands::kBf16:
      return shortened(x, 16);
    case KdaOperands::kFp32:
      break;
  }
  return x;
}

std::vector<float> operands_of(KdaOperands operands, const float* x, int64_t count) {
  std::vector<float> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = operand(operands, x[i]);
  return out;
}
std::vector<float> rest_of(const float* x, const std::vector<float>& high) {
  std::vector<float> out(high.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = shortened(x[i] - high[i], 13);
  return out;
}

template <class T>
void plain_product(int rows, int inner, int columns, const T* a, const T* b, T sign, T* c) {
  std::vector<T> sum(columns);
  for (int r = 0; r < rows; ++r) {
    std::fill(sum.begin(), sum.end(), T{0});
    for (int i = 0; i < inner; ++i) {
      const T x = a[r * inner + i];
      for (int j = 0; j < columns; ++j) sum[j] += x * b[i * columns + j];
    }
    for (int j = 0; j < columns; ++j) c[r * columns + j] += sign * sum[j];
  }
}

void product(KdaOperands operands, int rows, int inner, int columns, const float* a, const float* b, float sign,
             float* c) {
  kda_emulated_product(operands, rows, inner, columns, a, b, sign, c);
}
void product(KdaOperands, int rows, int inner, int columns, const double* a, const double* b, double sign, double* c) {
  plain_product(rows, inner, columns, a, b, sign, c);
}

// a [kDim, kDim] <- a·Diag(decay) - (a·Wᵀ)·keys
template <class T>
void advance(KdaOperands operands, const KdaChunkMap& map, std::vector<T>& a) {
  std::vector<T> w_t(kDim * kTokens), seen(kDim * kTokens);
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kDim; ++i) w_t[i * kTokens + t] = static_cast<T>(map.w[t * kDim + i]);
  product(operands, kDim, kDim, kTokens, a.data(), w_t.data(), T{1}, seen.data());
  const std::vector<T> keys(map.keys.begin(), map.keys.end());
  for (int r = 0; r < kDim; ++r)
    for (int i = 0; i < kDim; ++i) a[r * kDim + i] *= static_cast<T>(map.decay[i]);
  product(operands, kDim, kTokens, kDim, seen.data(), keys.data(), T{-1}, a.data());
}

template <class T>
void set_identity(std::vector<T>& a) {
  std::fill(a.begin(), a.end(), T{0});
  for (int i = 0; i < kDim; ++i) a[i * kDim + i] = 1;
}

}  // namespace

const char* kda_operands_name(KdaOperands operands) {
  constexpr const char* kNames[] = {"fp32", "tf32x3", "tf32", "tf32 truncated", "bf16"};
  return kNames[static_cast<int>(operands)];
}

const char* kda_chain_form_name(KdaChainForm form) { return form == KdaChainForm::kProduct ? "product" : "increment"; }

void kda_emulated_product(KdaOperands operands, int rows, int inner, int columns, const float* a, const float* b,
                          float sign, float* c) {
  if (operands == KdaOperands::kFp32) return plain_product(rows, inner, columns, a, b, sign, c);
  const std::vector<float> ah = operands_of(operands, a, int64_t{rows} * inner),
                           bh = operands_of(operands, b, int64_t{inner} * columns);
  if (operands == KdaOperands::kTf32x3) {  // small ones first
    plain_product(rows, inner, columns, rest_of(a, ah).data(), bh.data(), sign, c);
    plain_product(rows, inner, columns, ah.data(), rest_of(b, bh).data(), sign, c);
  }
  plain_product(rows, inner, columns, ah.data(), bh.data(), sign, c);
}

// x = k·exp(G), keys = k·exp(G_last - G), and (I + E)·W = Diag(b)·x with E the part of b·x·(k·exp(-G))ᵀ below the
// diagonal (model.md 5.4).
KdaChunkMap::KdaChunkMap(const KdaTokens& tokens) : decay(kDim), w(kTokens * kDim), keys(kTokens * kDim) {
  std::vector<double> G(kTokens * kDim), inverse(kTokens * kDim);
  for (int i = 0; i < kDim; ++i) {
    double sum = 0;
    for (int t = 0; t < kTokens; ++t) G[t * kDim + i] = sum += tokens.g[t * kDim + i];
    decay[i] = std::exp(sum);
  }
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kDim; ++i) {
      const int at = t * kDim + i;
      w[at] = tokens.k[at] * std::exp(G[at]);
      inverse[at] = tokens.k[at] * std::exp(-G[at]);
      keys[at] = inverse[at] * decay[i];
    }
  const std::vector<double> x = w;
  for (int t = 0; t < kTokens; ++t) {
    double* row = &w[t * kDim];
    for (int i = 0; i < kDim; ++i) row[i] *= tokens.b[t];
    for (int j = 0; j < t; ++j) {
      double e = 0;
      for (int i = 0; i < kDim; ++i) e += x[t * kDim + i] * inverse[j * kDim + i];
      for (int i = 0; i < kDim; ++i) row[i] -= tokens.b[t] * e * w[j * kDim + i];
    }
  }
}

template <class T>
KdaChain<T>::KdaChain(KdaChainForm form, KdaOperands operands)
    : form_(form), operands_(operands), a_(kDim * kDim), chunk_(kDim * kDim) {
  set_identity(a_);
}

template <class T>
void KdaChain<T>::append(const KdaChunkMap& map) {
  if (form_ == KdaChainForm::kIncrement) return advance(operands_, map, a_);
  set_identity(chunk_);
  advance(operands_, map, chunk_);
  std::vector<T> next(kDim * kDim);
  product(operands_, kDim, kDim, kDim, a_.data(), chunk_.data(), T{1}, next.data());
  a_ = std::move(next);
}

template class KdaChain<float>;
template class KdaChain<double>;

}  // namespace lathe
