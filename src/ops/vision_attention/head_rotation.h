#pragma once

#include <cmath>
#include <vector>

#include "ops/vision_attention/vision_attention.h"

// What happens to one head of q or k before attention. Compiled once a file that includes it, each for the vector unit
// the file stands for: all of it is in an anonymous namespace, so that no two files share an instantiation.

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

inline void round_to(DType dtype, float* x, int count) {
  if (dtype == DType::kBF16)
    for (int i = 0; i < count; ++i) x[i] = round_bf16(x[i]);
}

// Rounded as the contract says. D is a multiple of 4.
inline void norm_and_rotate(const VisionAttentionArgs& args, const AngleTable& angles, int64_t patch,
                            const float* weight, float* x) {
  const int dim = args.dim, half = dim / 2, quarter = dim / 4;
  float lanes[4] = {};
  for (int i = 0; i < dim; i += 4)
    for (int j = 0; j < 4; ++j) lanes[j] += x[i + j] * x[i + j];
  const float square = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  const float scale = 1 / std::sqrt(square / static_cast<float>(dim) + args.norm_eps);
  for (int i = 0; i < dim; ++i) x[i] *= scale;
  round_to(args.qkv.dtype, x, dim);
  for (int i = 0; i < dim; ++i) x[i] *= weight[i];
  round_to(args.qkv.dtype, x, dim);
  for (int part = 0; part < 2; ++part) {
    const int coordinate = part ? args.col[patch] : args.row[patch];
    const float *c = angles.cos(coordinate), *s = angles.sin(coordinate);
    float *first = x + part * quarter, *second = first + half;
    for (int i = 0; i < quarter; ++i) {
      const float a = first[i], b = second[i];
      first[i] = a * c[i] - b * s[i];
      second[i] = b * c[i] + a * s[i];
    }
  }
  round_to(args.qkv.dtype, x, dim);
}

}  // namespace
}  // namespace lathe
