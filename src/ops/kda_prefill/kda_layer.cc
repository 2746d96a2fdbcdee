#include "ops/kda_prefill/kda_layer.h"

namespace lathe {

namespace {

Status check_rows(const char* name, const Rows& r, int64_t rows, int64_t width, DType dtype) {
  if (r.dtype != dtype)
    return invalid("{} is {}, qkv {}: rows must be all alike", name, dtype_name(r.dtype), dtype_name(dtype));
  if (r.rows != rows || r.width != width || r.stride < width)
    return invalid("{} must be [{}, {}]; got [{}, {}], stride {}", name, rows, width, r.rows, r.width, r.stride);
  return Status::ok();
}

Status check_vector(const char* name, const Array<const float>& a, int64_t count) {
  if (a.count != count) return invalid("{} must have {} values, not {}", name, count, a.count);
  return Status::ok();
}

}  // namespace

Status check_kda(const KdaRows& in, const KdaLayer& layer, const KdaMemory& memory, const Rows& y, int64_t rows) {
  const int64_t heads = layer.heads, k = layer.k, v = layer.v, channels = layer.channels();
  if (heads < 1 || k < 1 || v < 1 || layer.width < 1)
    return invalid("heads {}, k {}, v {} and conv width {} must be positive", heads, k, v, layer.width);
  if (!(layer.bound <= 0))
    return invalid("the gate's lower bound must be negative, or 0 for none; got {}", layer.bound);
  const DType dtype = in.qkv.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    return invalid("rows must be f32 or bf16, not {}", dtype_name(dtype));
  LATHE_RETURN_IF_ERROR(check_rows("qkv", in.qkv, rows, channels, dtype));
  LATHE_RETURN_IF_ERROR(check_rows("forget", in.forget, rows, heads * k, dtype));
  LATHE_RETURN_IF_ERROR(check_rows("beta", in.beta, rows, heads, dtype));
  LATHE_RETURN_IF_ERROR(check_rows("gate", in.gate, rows, heads * v, dtype));
  LATHE_RETURN_IF_ERROR(check_rows("y", y, rows, heads * v, dtype));
  LATHE_RETURN_IF_ERROR(check_vector("conv_weight", layer.conv_weight, channels * layer.width));
  LATHE_RETURN_IF_ERROR(check_vector("a_log", layer.a_log, heads));
  LATHE_RETURN_IF_ERROR(check_vector("dt_bias", layer.dt_bias, heads * k));
  LATHE_RETURN_IF_ERROR(check_vector("norm_weight", layer.norm_weight, v));
  if (memory.ring < layer.width - 1)
    return invalid("a ring of {} rows is too short for a convolution of width {}", memory.ring, layer.width);
  if (memory.state.item_size != heads * v * k)
    return invalid("a slot's state must have {} values, not {}", heads * v * k, memory.state.item_size);
  if (memory.conv.item_size != memory.ring * channels || memory.conv.dtype != dtype)
    return invalid("a slot's ring must have {} values of {}, not {} of {}", memory.ring * channels, dtype_name(dtype),
                   memory.conv.item_size, dtype_name(memory.conv.dtype));
  if (memory.state.dtype != DType::kF32 && memory.state.dtype != DType::kBF16)
    return invalid("the state must be f32 or bf16, not {}", dtype_name(memory.state.dtype));
  return Status::ok();
}

}  // namespace lathe
