#pragma once

#include <string>

#include "ops/workload.h"

// The forms in which a checkpoint keeps matrices, for the workloads of every operator with a matrix product.

namespace lathe {

struct WeightForm {
  const char* name;
  DType dtype;
  bool w8a8;
};
constexpr WeightForm kF32Weights{"f32", DType::kF32, false}, kBF16Weights{"bf16", DType::kBF16, false},
    kF16Weights{"f16", DType::kF16, false}, kBlockWeights{"e4m3_blocks", DType::kE4M3, false},
    kInt8Weights{"w8a8_int8", DType::kI8, true}, kFp8Weights{"w8a8_fp8", DType::kE4M3, true};

// Seeded values of about `spread`.
Weight make_weight(CaseBuilder& b, int64_t out, int64_t in, WeightForm form, double spread);

// Values and scales.
int64_t weight_bytes(int64_t out, int64_t in, WeightForm form);

// The peak against which a product of x with such a weight is held.
Precision product_precision(DType x, WeightForm form);

}  // namespace lathe
