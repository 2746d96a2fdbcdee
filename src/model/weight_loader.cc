#include "model/weight_loader.h"

#include <fmt/ranges.h>

#include <cstring>

#include "model/tensor_spelling.h"
#include "ops/row_floats.h"

namespace lathe {

namespace {

bool is_weight_dtype(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16 || t == DType::kE4M3 || t == DType::kI8;
}

}  // namespace

const TensorSpan* WeightLoader::find(const std::string& name) const {
  const auto* found = find_tensor(checkpoint_, name);
  return found ? &found->second.span : nullptr;
}

const TensorSpan* WeightLoader::require(const std::string& name, const std::vector<int64_t>& shape) {
  if (!status_.is_ok()) return nullptr;
  const TensorSpan* span = find(name);
  if (!span) {
    fail(checkpoint_.missing(name));
    return nullptr;
  }
  if (span->shape != shape) {
    fail(corrupt("{}: tensor '{}': shape [{}], but config.json makes it [{}]", checkpoint_.dir(), name,
                 fmt::join(span->shape, ", "), fmt::join(shape, ", ")));
    return nullptr;
  }
  if (!is_weight_dtype(span->dtype)) {
    fail(corrupt("{}: tensor '{}': dtype {} is not one of f32, bf16, f16, e4m3, i8", checkpoint_.dir(), name,
                 dtype_name(span->dtype)));
    return nullptr;
  }
  return span;
}

Weight WeightLoader::view(const TensorSpan& span, int64_t out, int64_t in) {
  return {.data = span.data, .dtype = span.dtype, .out = out, .in = in, .stride = in};
}

void WeightLoader::attach_scales(const std::string& name, Weight& w) {
  auto use = [&](const TensorSpan& scale, const std::string& scale_name, std::vector<int64_t> shape, int block_out,
                 int block_in) {
    if (scale.shape != shape || scale.dtype != DType::kF32)
      return fail(
          corrupt("{}: tensor '{}': must be f32 of shape [{}]", checkpoint_.dir(), scale_name, fmt::join(shape, ", ")));
    w.scale = static_cast<const float*>(scale.data);
    w.block_out = block_out, w.block_in = block_in;
    w.scale_stride = shape.back();
  };
  constexpr int kBlock = 128;
  if (const TensorSpan* blocks = find(name + "_scale_inv"))
    use(*blocks, name + "_scale_inv", {(w.out + kBlock - 1) / kBlock, (w.in + kBlock - 1) / kBlock}, kBlock, kBlock);
  else if (const TensorSpan* rows = find(name + "_scale"))
    use(*rows, name + "_scale", {w.out, 1}, 1, static_cast<int>(w.in));
  else if (w.dtype == DType::kI8 || w.dtype == DType::kE4M3)
    fail(corrupt("{}: tensor '{}' is {} but has neither '{}_scale_inv' nor '{}_scale'", checkpoint_.dir(), name,
                 dtype_name(w.dtype), name, name));
}

Weight WeightLoader::cut(const std::string& name, Weight w, int64_t unit) {
  const TensorCut* c = find_cut(name, mixer_, partition_);
  if (!c) return w;
  const int64_t axis = c->axis == CutAxis::kOut ? w.out : w.in;
  const Partition::Range part = partition_.share(axis / unit);
  if (w.scale && w.block_in < w.in && c->axis == CutAxis::kIn && (part.begin * unit) % w.block_in) {
    fail(invalid("{}: tensor '{}': this cut would split a block of scales; use fewer ranks", checkpoint_.dir(), name));
    return w;
  }
  if (w.scale && w.block_out > 1 && c->axis == CutAxis::kOut && (part.begin * unit) % w.block_out) {
    fail(invalid("{}: tensor '{}': this cut would split a block of scales; use fewer ranks", checkpoint_.dir(), name));
    return w;
  }
  if (c->axis == CutAxis::kOut) return w.slice(part.begin * unit, part.count * unit);
  w.data = static_cast<const char*>(w.data) + part.begin * unit * dtype_bytes(w.dtype);
  if (w.scale && w.block_in < w.in) w.scale += part.begin * unit / w.block_in;
  if (w.scale && w.block_in == w.in) w.block_in = static_cast<int>(part.count * unit);
  w.in = part.count * unit;
  return w;
}

const void* WeightLoader::upload_bytes(const void* data, int64_t bytes) {
  Result<DeviceBuffer> buffer = DeviceBuffer::allocate(device_, bytes);
  if (!buffer.is_ok()) {
    fail(buffer.status());
    return nullptr;
  }
  device_.to_device(buffer->as(), data, bytes);
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back().as();
}

Weight WeightLoader::upload(Weight w) {
  const int width = dtype_bytes(w.dtype);
  mapped_bytes_ += w.out * w.in * width;
  if (device_.shares_host_memory() || !status_.is_ok() || w.out == 0) return w;
  const int64_t span = (w.out - 1) * w.stride + w.in;
  w.data = upload_bytes(w.data, span * width);
  if (w.scale) {
    const int64_t rows = (w.out + w.block_out - 1) / w.block_out, columns = (w.in + w.block_in - 1) / w.block_in;
    w.scale = static_cast<const float*>(upload_bytes(w.scale, ((rows - 1) * w.scale_stride + columns) * 4));
  }
  return w;
}

Weight WeightLoader::matrix(const std::string& name, int64_t out, int64_t in, int64_t unit) {
  return matrix_of_shape(name, {out, in}, out, in, unit);
}

Weight WeightLoader::matrix_as(const std::string& part, const std::string& name, int64_t out, int64_t in) {
  const Weight w = whole(name, {out, in}, out, in);
  return w.empty() ? w : upload(cut(place_ + part, w, 1));
}

Weight WeightLoader::matrix_of_shape(const std::string& name, const std::vector<int64_t>& shape, int64_t out,
                                     int64_t in, int64_t unit) {
  const Weight w = whole(name, shape, out, in);
  return w.empty() ? w : upload(cut(place_ + name, w, unit));
}

Weight WeightLoader::whole(const std::string& name, const std::vector<int64_t>& shape, int64_t out, int64_t in) {
  const TensorSpan* span = require(place_ + name, shape);
  if (!span) return {};
  Weight w = view(*span, out, in);
  attach_scales(place_ + name, w);
  return status_.is_ok() ? w : Weight{};
}

Weight WeightLoader::stacked(const std::string& name, int64_t n, int64_t rows, int64_t in, int64_t index, int64_t row,
                             int64_t out) {
  const TensorSpan* span = require(place_ + name, {n, rows, in});
  if (!span) return {};
  if (span->dtype == DType::kI8 || span->dtype == DType::kE4M3) {
    fail(corrupt("{}: tensor '{}': stacked experts must be f32, bf16 or f16", checkpoint_.dir(), place_ + name));
    return {};
  }
  Weight all = view(*span, n * rows, in);
  return upload(all.slice(index * rows + row, out));
}

std::vector<float> WeightLoader::floats(const std::string& name, int64_t count) {
  if (!status_.is_ok()) return {};
  const std::string full = place_ + name;
  const TensorSpan* span = find(full);
  if (!span) {
    fail(checkpoint_.missing(full));
    return {};
  }
  if (span->count() != count ||
      (span->dtype != DType::kF32 && span->dtype != DType::kBF16 && span->dtype != DType::kF16)) {
    fail(corrupt("{}: tensor '{}': {} of shape [{}], but {} values of f32, bf16 or f16 are expected", checkpoint_.dir(),
                 full, dtype_name(span->dtype), fmt::join(span->shape, ", "), count));
    return {};
  }
  std::vector<float> values(count);
  read_floats(span->data, span->dtype, count, values.data());
  return values;
}

std::vector<float> WeightLoader::cut_floats(const std::string& name, std::vector<float> values, int64_t unit) const {
  if (values.empty() || !find_cut(place_ + name, mixer_, partition_)) return values;
  const Partition::Range part = partition_.share(static_cast<int64_t>(values.size()) / unit);
  return {values.begin() + part.begin * unit, values.begin() + (part.begin + part.count) * unit};
}

Array<const float> WeightLoader::constant(const std::vector<float>& values) {
  if (!status_.is_ok() || values.empty()) return {};
  return {static_cast<const float*>(upload_bytes(values.data(), static_cast<int64_t>(values.size()) * 4)),
          static_cast<int64_t>(values.size())};
}

Array<const float> WeightLoader::vector(const std::string& name, int64_t count, int64_t unit) {
  return constant(cut_floats(name, floats(name, count), unit));
}

Array<const float> WeightLoader::vectors(const std::vector<std::string>& names, int64_t count_each, int64_t unit) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> one = cut_floats(name, floats(name, count_each), unit);
    all.insert(all.end(), one.begin(), one.end());
  }
  return constant(all);
}

Array<const float> WeightLoader::fused_vector(const std::string& name, const std::string& like, int parts,
                                              int64_t count_each, int64_t unit) {
  const std::vector<float> values = floats(name, parts * count_each);
  std::vector<float> all;
  for (int i = 0; i < parts && !values.empty(); ++i) {
    const std::vector<float> one =
        cut_floats(like, {values.begin() + i * count_each, values.begin() + (i + 1) * count_each}, unit);
    all.insert(all.end(), one.begin(), one.end());
  }
  return constant(all);
}

int64_t WeightLoader::device_bytes() const {
  int64_t sum = 0;
  for (const DeviceBuffer& b : buffers_) sum += b.bytes();
  return sum;
}

}  // namespace lathe
