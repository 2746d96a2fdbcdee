#include "engine/run_settings.h"

#include "ops/row_floats.h"

namespace lathe {

Result<DType> activation_dtype(const std::string& name, const glm5_next::TextConfig& config) {
  if (name.empty()) return config.dtype;
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  return invalid("--dtype {}: expected f32 or bf16", name);
}

Status rows_to_host(Device& device, const Rows& rows, std::vector<float>& out) {
  out.resize(rows.rows * rows.width);
  if (rows.rows == 0) return device.synchronize();
  LATHE_CHECK(rows.stride == rows.width);
  if (rows.dtype == DType::kF32)
    return device.to_host(out.data(), rows.data, static_cast<int64_t>(out.size() * sizeof(float)));
  std::vector<char> raw(out.size() * dtype_bytes(rows.dtype));
  LATHE_RETURN_IF_ERROR(device.to_host(raw.data(), rows.data, static_cast<int64_t>(raw.size())));
  read_floats(raw.data(), rows.dtype, static_cast<int64_t>(out.size()), out.data());
  return Status::ok();
}

}  // namespace lathe
