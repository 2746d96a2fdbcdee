#pragma once

#include <array>

#include "ops/op.h"

// Matrix products that share their input: for each product i
//   y_i[r] = x[r]·w_iᵀ + bias_i            (bias only where given)
//
// x: f32 or bf16, or int8 / e4m3 rows with scales. y: f32 or bf16. w: f32, bf16, f16;
//   e4m3 with blocks of scales (the released FP8 layout): used as the numbers stored·scale, x stays as it is;
//   int8 or e4m3 with one scale an output row (W8A8): x, unless it comes in that form, is quantised by row first:
//     scale = max|x|/top, stored = round to nearest even of x·(top/max|x|), all in fp32; top = 127 for int8, 448 for
//     e4m3. A row whose max|x| is below 1e-30 is a row of zeros; one that holds a NaN or an infinity has the scale NaN.
//     Sums of int8 are exact in int32.
// Sums in fp32 (int8: int32); one rounding to y's dtype. An f32 x meets bf16 weights as f32: weights are widened a
// tile at a time, never as a copy. Every variant adds a row's products in one order, whatever the number of rows:
// a row's bits depend on that row alone.
// Tolerance, RMS(err)/RMS(reference): 3e-6 with f32 y, 5e-3 with bf16 y.
namespace lathe {

struct Product {
  Weight w;                 // [out, in]
  Array<const float> bias;  // [out], or empty
  Rows y;                   // [rows, out]; aliases neither x nor another y

  template <class V>
  void visit(V&& v) {
    v("w", w, Role::kIn), v("bias", bias, Role::kIn), v("y", y, Role::kOut);
  }
};

struct LinearArgs {
  static constexpr int kMaxProducts = 8;
  Rows x;  // [rows, in]
  std::array<Product, kMaxProducts> product;
  int products = 0;

  LinearArgs() = default;
  LinearArgs(Rows x, std::initializer_list<Product> list) : x(x), products(static_cast<int>(list.size())) {
    std::copy(list.begin(), list.end(), product.begin());
  }

  template <class V>
  void visit(V&& v) {
    v("x", x, Role::kIn);
    for (int i = 0; i < products; ++i) product[i].visit(v);
  }
};

Status linear(OpContext& ctx, const LinearArgs& args);
extern const Op<LinearArgs> kLinear;

}  // namespace lathe
