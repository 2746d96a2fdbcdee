#include <cmath>

#include "ops/element.h"
#include "ops/linear/oracle.h"
#include "ops/mlp/oracle.h"
#include "ops/mlp/variants.h"

namespace lathe::reference {

namespace {

double swiglu(double g, double u, double limit) {
  if (limit > 0) {
    if (g > limit) g = limit;
    if (u > limit) u = limit;
    if (u < -limit) u = -limit;
  }
  return g / (1 + std::exp(-g)) * u;
}

}  // namespace

std::vector<double> mlp_row(const Rows& x, int64_t row, const MlpWeights& w, float limit) {
  const std::vector<double> gate = product(met_by(w.gate, x, row), w.gate, w.gate_bias);
  const std::vector<double> up = product(met_by(w.up, x, row), w.up, w.up_bias);
  std::vector<float> middle(gate.size());
  for (size_t i = 0; i < gate.size(); ++i)
    middle[i] = static_cast<float>(rounded(swiglu(gate[i], up[i], limit), w.down.is_w8a8() ? DType::kF32 : x.dtype));
  return product(met_by(w.down, middle), w.down, w.down_bias);
}

Status mlp(OpContext&, const MlpArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const std::vector<double> y = mlp_row(args.x, r, args.w, args.limit);
    for (int64_t o = 0; o < args.y.width; ++o) store(args.y, r, o, y[o]);
  }
  return Status::ok();
}

}  // namespace lathe::reference
