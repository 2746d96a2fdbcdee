#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/vision_attention/vision_attention.h"

// What happens to one head of q or k before attention, over a file's Lanes (ops/lanes_*.h, which it includes first).

namespace lathe {
namespace {

// cos and sin of every coordinate's D/4 angles. In double: a float angle of 700 is off by 3e-5 radians.
class AngleTable {
 public:
  AngleTable(const VisionAttentionArgs& args, int largest)
      : quarter_(args.dim / 4), cos_((int64_t{largest} + 1) * quarter_), sin_(cos_.size()) {
    for (int64_t i = 0; i < quarter_; ++i) {
      const double frequency = std::pow(double{args.theta}, -4.0 * static_cast<double>(i) / args.dim);
      for (int64_t at = 0; at <= largest; ++at) {
        cos_[at * quarter_ + i] = static_cast<float>(std::cos(static_cast<double>(at) * frequency));
        sin_[at * quarter_ + i] = static_cast<float>(std::sin(static_cast<double>(at) * frequency));
      }
    }
  }
  const float* cos(int64_t coordinate) const { return &cos_[coordinate * quarter_]; }
  const float* sin(int64_t coordinate) const { return &sin_[coordinate * quarter_]; }

 private:
  int64_t quarter_;
  std::vector<float> cos_, sin_;
};

// A head norm's weight, with zeroes up to whole vectors.
inline std::vector<float> padded_weight(const Array<const float>& weight, int64_t width) {
  std::vector<float> padded(width);
  std::copy(weight.data, weight.data + weight.count, padded.begin());
  return padded;
}

// Norms and rotates x[D], rounded as the contract says. x and weight have zeroes from D up to whole vectors.
inline void norm_and_rotate(const VisionAttentionArgs& args, const AngleTable& angles, int64_t patch,
                            const float* weight, float* x) {
  const bool narrow = args.qkv.dtype == DType::kBF16;
  const auto rounded = [&](Lanes::V v) { return narrow ? Lanes::round_bf16(v) : v; };
  const int dim = args.dim, half = dim / 2, quarter = dim / 4;
  Lanes::V square = Lanes::zero();
  for (int i = 0; i < dim; i += Lanes::kCount) square = Lanes::fma(Lanes::load(x + i), Lanes::load(x + i), square);
  const float mean = Lanes::sum(square) / static_cast<float>(dim);
  const Lanes::V scale = Lanes::set(1 / std::sqrt(mean + args.norm_eps));
  for (int i = 0; i < dim; i += Lanes::kCount)
    Lanes::store(x + i, rounded(Lanes::load(weight + i) * rounded(Lanes::load(x + i) * scale)));
  for (int part = 0; part < 2; ++part) {
    const int coordinate = part ? args.col[patch] : args.row[patch];
    const float *cos = angles.cos(coordinate), *sin = angles.sin(coordinate);
    float *first = x + part * quarter, *second = first + half;
    for (int i = 0; i < quarter; i += Lanes::kCount) {
      const int n = std::min(Lanes::kCount, quarter - i);
      const Lanes::V c = Lanes::load(cos + i, n), s = Lanes::load(sin + i, n);
      const Lanes::V a = Lanes::load(first + i, n), b = Lanes::load(second + i, n);
      Lanes::store(first + i, rounded(a * c - b * s), n);
      Lanes::store(second + i, rounded(b * c + a * s), n);
    }
  }
}

}  // namespace
}  // namespace lathe
