#include <cmath>
#include <limits>

#include "ops/element.h"
#include "ops/linear/oracle.h"
#include "ops/linear/variants.h"

namespace lathe::reference {

namespace {

// The one place of an oracle that computes in fp32: which step a value falls on is part of the contract.
std::vector<double> quantised(const std::vector<float>& x, DType dtype) {
  const float top = dtype == DType::kI8 ? 127 : 448;
  float largest = 0;
  bool finite = true;
  for (float v : x) finite = finite && std::isfinite(v), largest = std::max(largest, std::fabs(v));
  if (!finite) return std::vector<double>(x.size(), std::numeric_limits<double>::quiet_NaN());
  std::vector<double> y(x.size(), 0);
  if (largest < 1e-30f) return y;
  const float scale = largest / top, inverse = top / largest;
  for (size_t i = 0; i < x.size(); ++i) {
    const float steps = x[i] * inverse;
    y[i] = double{scale} * (dtype == DType::kI8 ? std::nearbyint(steps) : to_float(to_e4m3(steps)));
  }
  return y;
}

}  // namespace

std::vector<double> met_by(const Weight& w, const std::vector<float>& x) {
  return w.is_w8a8() ? quantised(x, w.dtype) : std::vector<double>(x.begin(), x.end());
}

std::vector<double> met_by(const Weight& w, const Rows& x, int64_t row) {
  std::vector<double> values(x.width);
  for (int64_t i = 0; i < x.width; ++i) values[i] = load(x, row, i);
  if (!w.is_w8a8() || x.dtype == w.dtype) return values;
  return quantised({values.begin(), values.end()}, w.dtype);
}

std::vector<double> product(const std::vector<double>& x, const Weight& w, Array<const float> bias) {
  std::vector<double> y(w.out);
  for (int64_t o = 0; o < w.out; ++o) {
    double sum = 0;
    for (int64_t i = 0; i < w.in; ++i) sum += x[i] * load(w, o, i);
    y[o] = sum + (bias.empty() ? 0 : bias[o]);
  }
  return y;
}

Status linear(OpContext&, const LinearArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r)
    for (int i = 0; i < args.products; ++i) {
      const Product& p = args.product[i];
      const std::vector<double> y = product(met_by(p.w, args.x, r), p.w, p.bias);
      for (int64_t o = 0; o < p.w.out; ++o) store(p.y, r, o, y[o]);
    }
  return Status::ok();
}

}  // namespace lathe::reference
