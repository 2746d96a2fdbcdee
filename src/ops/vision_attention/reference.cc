#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/element.h"
#include "ops/vision_attention/variants.h"

namespace lathe::reference {

namespace {

enum Part { kQuery, kKey, kValue };

double raw(const VisionAttentionArgs& args, int64_t patch, int head, Part part, int i) {
  return load(args.qkv, patch, (int64_t{part} * args.heads + head) * args.dim + i);
}

// Angle of channel i < D/2 of a patch: rows turn the first quarter of the channels, columns the second.
double angle(const VisionAttentionArgs& args, int64_t patch, int i) {
  const int quarter = args.dim / 4;
  const double frequency = std::pow(double{args.theta}, -2.0 * (i % quarter) / (args.dim / 2));
  return (i < quarter ? args.row[patch] : args.col[patch]) * frequency;
}

// RMSNorm over the head, then the rotation; rounded where the contract says.
std::vector<double> rotated(const VisionAttentionArgs& args, int64_t patch, int head, Part part) {
  const Array<const float>& weight = part == kQuery ? args.q_norm : args.k_norm;
  const DType dtype = args.qkv.dtype;
  const int half = args.dim / 2;
  double square = 0;
  for (int i = 0; i < args.dim; ++i) square += raw(args, patch, head, part, i) * raw(args, patch, head, part, i);
  const double scale = 1 / std::sqrt(square / args.dim + args.norm_eps);
  std::vector<double> x(args.dim), y(args.dim);
  for (int i = 0; i < args.dim; ++i)
    x[i] = rounded(weight[i] * rounded(raw(args, patch, head, part, i) * scale, dtype), dtype);
  for (int i = 0; i < half; ++i) {
    const double c = std::cos(angle(args, patch, i)), s = std::sin(angle(args, patch, i));
    y[i] = rounded(x[i] * c - x[i + half] * s, dtype);
    y[i + half] = rounded(x[i + half] * c + x[i] * s, dtype);
  }
  return y;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void attend_segment(const VisionAttentionArgs& args, int64_t begin, int64_t end, int head) {
  std::vector<std::vector<double>> keys;
  for (int64_t j = begin; j < end; ++j) keys.push_back(rotated(args, j, head, kKey));
  for (int64_t i = begin; i < end; ++i) {
    const std::vector<double> query = rotated(args, i, head, kQuery);
    std::vector<double> p(end - begin);
    for (int64_t j = begin; j < end; ++j) p[j - begin] = dot(query, keys[j - begin]) / std::sqrt(args.dim);
    const double top = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - top);
    for (int d = 0; d < args.dim; ++d) {
      double y = 0;
      for (int64_t j = begin; j < end; ++j) y += p[j - begin] * raw(args, j, head, kValue, d);
      store(args.out, i, int64_t{head} * args.dim + d, y / total);
    }
  }
}

}  // namespace

Status vision_attention(OpContext&, const VisionAttentionArgs& args) {
  for (int64_t s = 0; s + 1 < args.segment_start.count; ++s)
    for (int head = 0; head < args.heads; ++head)
      attend_segment(args, args.segment_start[s], args.segment_start[s + 1], head);
  return Status::ok();
}

}  // namespace lathe::reference
