#include "ops/linear/operands.h"

namespace lathe {

namespace {

bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }
bool is_eight_bit(DType t) { return t == DType::kI8 || t == DType::kE4M3; }

}  // namespace

Status check_activations(const Rows& x, const char* name) {
  if (!is_float(x.dtype) && !is_eight_bit(x.dtype))
    return invalid("{} must be f32, bf16, or int8 or e4m3 rows with scales, not {}", name, dtype_name(x.dtype));
  if (is_eight_bit(x.dtype) && !x.scale && x.rows > 0)
    return invalid("{} is {} without row scales", name, dtype_name(x.dtype));
  if (x.stride < x.width) return invalid("{} has rows of {} at a stride of {}", name, x.width, x.stride);
  return Status::ok();
}

Status check_weight(const Weight& w, int64_t in, const char* name) {
  if (w.in != in) return invalid("{} is [{}, {}] and meets rows of {}", name, w.out, w.in, in);
  if (w.stride < w.in) return invalid("{} has rows of {} at a stride of {}", name, w.in, w.stride);
  if (is_float(w.dtype) || w.dtype == DType::kF16)
    return w.scale ? invalid("{} is {} and has scales", name, dtype_name(w.dtype)) : Status::ok();
  if (!is_eight_bit(w.dtype)) return invalid("{} can't be {}", name, dtype_name(w.dtype));
  if (w.empty()) return Status::ok();
  if (!w.scale || w.block_out < 1 || w.block_in < 1)
    return invalid("{} is {} without scales", name, dtype_name(w.dtype));
  if (w.scale_stride < (w.in + w.block_in - 1) / w.block_in)
    return invalid("{} has {} scales a row for {} columns in blocks of {}", name, w.scale_stride, w.in, w.block_in);
  if (w.dtype == DType::kI8 && !w.is_w8a8())
    return invalid("{} is int8 with blocks of {} x {}: only 1 x in is known", name, w.block_out, w.block_in);
  if (w.is_w8a8() && w.block_in < w.in)
    return invalid("{} has {} scales for an output row of {}: only one is known", name,
                   (w.in + w.block_in - 1) / w.block_in, w.in);
  return Status::ok();
}

Status check_result(const Rows& y, int64_t rows, int64_t width, const char* name) {
  if (!is_float(y.dtype)) return invalid("{} must be f32 or bf16, not {}", name, dtype_name(y.dtype));
  if (y.rows != rows || y.width != width)
    return invalid("{} must be [{}, {}], not [{}, {}]", name, rows, width, y.rows, y.width);
  if (y.stride < y.width) return invalid("{} has rows of {} at a stride of {}", name, y.width, y.stride);
  return Status::ok();
}

Status check_bias(Array<const float> bias, int64_t out, const char* name) {
  if (!bias.empty() && bias.count != out) return invalid("{} has {} values for {} outputs", name, bias.count, out);
  return Status::ok();
}

}  // namespace lathe
