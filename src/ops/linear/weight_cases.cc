#include "ops/linear/weight_cases.h"

namespace lathe {

Weight make_weight(CaseBuilder& b, int64_t out, int64_t in, WeightForm form, double spread) {
  if (form.dtype == DType::kF16) {  // bf16 bits of numbers about 1, read as f16, are numbers of both signs from 1 to 3
    Weight w = b.weight(out, in, DType::kBF16, 1);
    w.dtype = DType::kF16;
    return w;
  }
  Weight w = b.weight(out, in, form.dtype, spread);
  if (form.dtype == DType::kE4M3 && form.w8a8) {
    w.block_out = 1, w.block_in = static_cast<int>(in), w.scale_stride = 1;
    w.scale = b.vector(out, spread / 1000, spread / 100).data;
  }
  return w;
}

int64_t weight_bytes(int64_t out, int64_t in, WeightForm form) {
  const int64_t scales = form.w8a8 ? out : form.dtype == DType::kE4M3 ? (out + 127) / 128 * ((in + 127) / 128) : 0;
  return out * in * dtype_bytes(form.dtype) + scales * 4;
}

Precision product_precision(DType x, WeightForm form) {
  if (form.w8a8) return form.dtype == DType::kI8 ? Precision::kInt8 : Precision::kBf16;
  return x == DType::kBF16 && form.dtype != DType::kF32 && form.dtype != DType::kF16 ? Precision::kBf16
                                                                                     : Precision::kFp32;
}

}  // namespace lathe
