#include "base/device.h"

namespace lathe {

Result<DeviceBuffer> DeviceBuffer::allocate(Device& device, int64_t bytes) {
  LATHE_ASSIGN(void* data, device.allocate(bytes));
  DeviceBuffer buffer;
  buffer.device_ = &device;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

Result<std::unique_ptr<Device>> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_device();
  if (name == "sim") return make_sim_device();
  return invalid("--device: '{}' is not a device of this build; use cpu or sim", name);
}

}  // namespace lathe
