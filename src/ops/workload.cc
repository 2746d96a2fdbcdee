#include "ops/workload.h"

#include <algorithm>
#include <numbers>

namespace lathe {

std::vector<FieldView> AnyCase::outputs() const {
  std::vector<FieldView> written = fields();
  std::erase_if(written, [](const FieldView& field) { return field.role == Role::kIn; });
  return written;
}

int64_t row_count(const std::vector<FieldView>& fields) {
  for (bool inputs : {false, true})
    for (const FieldView& f : fields)
      if (f.batch && (f.role == Role::kIn) == inputs) return f.rows;
  return 1;
}

constexpr uint64_t kStride = 0x9e3779b97f4a7c15ull;

uint64_t CaseBuilder::next() {  // splitmix64
  uint64_t z = (state_ += kStride);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

bool CaseBuilder::skips(int64_t draws) {
  if (content_ == Content::kValues) return false;
  state_ += static_cast<uint64_t>(draws) * kStride;
  return true;
}

double CaseBuilder::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double CaseBuilder::normal() {
  return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform());
}

int CaseBuilder::below(int n) { return static_cast<int>(uniform() * n); }

void CaseBuilder::upload_floats(void* to, const std::vector<float>& values, DType dtype) {
  if (dtype == DType::kF32) return device_.to_device(to, values.data(), static_cast<int64_t>(values.size()) * 4);
  LATHE_CHECK(dtype == DType::kBF16);
  std::vector<bf16> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), [](float x) { return to_bf16(x); });
  device_.to_device(to, narrow.data(), static_cast<int64_t>(narrow.size()) * 2);
}

Rows CaseBuilder::empty_rows(int64_t rows, int64_t width, DType dtype) {
  Rows r = memory_.rows(rows, width, dtype);
  memory_.take(kGuardBytes);
  return r;
}

Rows CaseBuilder::rows(int64_t rows, int64_t width, DType dtype, double spread, double mean) {
  Rows r = empty_rows(rows, width, dtype);
  if (skips(2 * rows * width)) return r;
  std::vector<float> values(rows * width);
  for (float& v : values) v = static_cast<float>(mean + spread * normal());
  if (dtype != DType::kI8) {
    upload_floats(r.data, values, dtype);
    return r;
  }
  std::vector<int8_t> stored(values.size());
  std::vector<float> scale(rows);
  for (int64_t i = 0; i < rows; ++i) {
    float top = 1e-12f;
    for (int64_t j = 0; j < width; ++j) top = std::max(top, std::fabs(values[i * width + j]));
    scale[i] = top / 127;
    for (int64_t j = 0; j < width; ++j)
      stored[i * width + j] = static_cast<int8_t>(std::lrint(values[i * width + j] / scale[i]));
  }
  device_.to_device(r.data, stored.data(), static_cast<int64_t>(stored.size()));
  device_.to_device(r.scale, scale.data(), rows * 4);
  return r;
}

Weight CaseBuilder::weight(int64_t out, int64_t in, DType dtype, double spread) {
  Weight w{.data = take<char>(out * in * dtype_bytes(dtype)), .dtype = dtype, .out = out, .in = in, .stride = in};
  void* data = const_cast<void*>(w.data);
  if (dtype == DType::kF32 || dtype == DType::kBF16) {
    if (skips(2 * out * in)) return w;
    std::vector<float> values(out * in);
    for (float& v : values) v = static_cast<float>(spread * normal());
    upload_floats(data, values, dtype);
    return w;
  }
  LATHE_CHECK(dtype == DType::kI8 || dtype == DType::kE4M3);
  const bool int8 = dtype == DType::kI8;
  w.block_out = int8 ? 1 : 128;
  w.block_in = int8 ? static_cast<int>(in) : 128;
  w.scale_stride = (in + w.block_in - 1) / w.block_in;
  std::vector<float> scale((out + w.block_out - 1) / w.block_out * w.scale_stride);
  if (skips(static_cast<int64_t>(scale.size()) + 2 * out * in)) {
    w.scale = take<float>(static_cast<int64_t>(scale.size()));
    return w;
  }
  for (float& s : scale) s = static_cast<float>(spread / (int8 ? 50 : 100) * (0.75 + 0.5 * uniform()));
  std::vector<uint8_t> stored(out * in);
  for (uint8_t& v : stored)
    v = int8 ? static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::lrint(50 * normal()), -127l, 127l)))
             : to_e4m3(static_cast<float>(100 * normal())).bits;
  device_.to_device(data, stored.data(), static_cast<int64_t>(stored.size()));
  float* on_device = take<float>(static_cast<int64_t>(scale.size()));
  device_.to_device(on_device, scale.data(), static_cast<int64_t>(scale.size()) * 4);
  w.scale = on_device;
  return w;
}

Array<const float> CaseBuilder::vector(int64_t count, double spread, double mean) {
  return {rows(1, count, DType::kF32, spread, mean).f32(), count};
}

Array<const int32_t> CaseBuilder::ints(const std::vector<int32_t>& values) {
  const int64_t count = static_cast<int64_t>(values.size());
  int32_t* p = take<int32_t>(count);
  device_.to_device(p, values.data(), count * 4);
  return {p, count};
}

Pool CaseBuilder::pool(int64_t items, int64_t item_size, DType dtype, double spread) {
  return {.data = rows(items, item_size, dtype, spread).data, .dtype = dtype, .items = items, .item_size = item_size};
}

Ragged SequencePart::cut(const Ragged& runs) {
  all_ = runs.start.count - 1;
  const int32_t* start = runs.start.data + begin_;
  first_row_ = start[0], rows_ = start[count_] - start[0];
  std::vector<int32_t> from_zero(start, start + count_ + 1);
  for (int32_t& row : from_zero) row -= static_cast<int32_t>(first_row_);
  return {keep(std::move(from_zero)), by_sequence(runs.past)};
}

Array<const int32_t> SequencePart::keep(std::vector<int32_t> values) {
  kept_->push_back(std::move(values));
  return {kept_->back().data(), static_cast<int64_t>(kept_->back().size())};
}

}  // namespace lathe
