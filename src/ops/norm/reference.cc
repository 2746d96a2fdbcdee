#include <cmath>
#include <numbers>

#include "ops/element.h"
#include "ops/norm/variants.h"

namespace lathe::reference {

namespace {

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

// The mean of (x - center)² over a row.
double mean_square(const Rows& x, int64_t row, double center) {
  double sum = 0;
  for (int64_t i = 0; i < x.width; ++i) sum += (load(x, row, i) - center) * (load(x, row, i) - center);
  return sum / static_cast<double>(x.width);
}

double mean(const Rows& x, int64_t row) {
  double sum = 0;
  for (int64_t i = 0; i < x.width; ++i) sum += load(x, row, i);
  return sum / static_cast<double>(x.width);
}

}  // namespace

Status norm(OpContext&, const NormArgs& args) {
  const bool layer = args.kind == NormKind::kLayer;
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const double center = layer ? mean(args.x, r) : 0;
    const double scale = 1 / std::sqrt(mean_square(args.x, r, center) + args.eps);
    for (int64_t i = 0; i < args.x.width; ++i) {
      const double normed = (load(args.x, r, i) - center) * scale;
      const double y = layer ? args.weight[i] * normed + args.bias[i] : args.weight[i] * rounded(normed, args.y.dtype);
      store(args.y, r, i, args.gelu ? gelu(y) : y);
    }
  }
  return Status::ok();
}

}  // namespace lathe::reference
