#include "base/device.h"

#include <chrono>

namespace lathe {

Result<DeviceBuffer> DeviceBuffer::allocate(Device& device, int64_t bytes) {
  LATHE_ASSIGN(void* data, device.allocate(bytes));
  DeviceBuffer buffer;
  buffer.device_ = &device;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

Result<double> Device::time_us(const std::function<Status()>& work) {
  LATHE_RETURN_IF_ERROR(synchronize());
  const auto begin = std::chrono::steady_clock::now();
  LATHE_RETURN_IF_ERROR(work());
  LATHE_RETURN_IF_ERROR(synchronize());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

#ifdef LATHE_CUDA
std::vector<std::string> device_names() { return {"cpu", "sim", "cuda"}; }
#else
std::vector<std::string> device_names() { return {"cpu", "sim"}; }
Result<std::unique_ptr<Device>> make_cuda_device() {
  return invalid("--device cuda: this build has no CUDA; configure it with cmake --preset cuda");
}
#endif

Result<std::unique_ptr<Device>> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_device();
  if (name == "sim") return make_sim_device();
  if (name == "cuda") return make_cuda_device();
  return invalid("--device: '{}' is not a device; there are cpu, sim and cuda", name);
}

}  // namespace lathe
