#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/device.h"

namespace lathe {

namespace {

Status status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Status::ok();
  if (error == cudaErrorMemoryAllocation) return exhausted("cuda: {}: out of memory", what);
  return internal("cuda: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// Pinned memory through which uploads go, so that the host needn't wait for them. Two halves, used in turn: a half is
// filled again when the copies out of it are done.
class Staging {
 public:
  static constexpr int64_t kHalfBytes = int64_t{4} << 20;

  ~Staging() {
    for (Half& h : halves_)
      if (h.done) cudaEventDestroy(h.done);
    if (memory_) cudaFreeHost(memory_);
  }

  cudaError_t create() {
    if (cudaError_t e = cudaMallocHost(reinterpret_cast<void**>(&memory_), 2 * kHalfBytes)) return e;
    for (Half& h : halves_)
      if (cudaError_t e = cudaEventCreateWithFlags(&h.done, cudaEventDisableTiming)) return e;
    return cudaSuccess;
  }

  cudaError_t upload(char* to, const char* from, int64_t bytes, cudaStream_t stream) {
    while (bytes > 0) {
      if (used_ == kHalfBytes) {
        if (cudaError_t e = cudaEventRecord(halves_[now_].done, stream)) return e;
        now_ ^= 1, used_ = 0;
        if (cudaError_t e = cudaEventSynchronize(halves_[now_].done)) return e;
      }
      const int64_t piece = std::min(bytes, kHalfBytes - used_);
      char* pinned = memory_ + now_ * kHalfBytes + used_;
      std::memcpy(pinned, from, piece);
      if (cudaError_t e = cudaMemcpyAsync(to, pinned, piece, cudaMemcpyHostToDevice, stream)) return e;
      to += piece, from += piece, bytes -= piece;
      used_ = std::min(kHalfBytes, (used_ + piece + 63) / 64 * 64);
    }
    return cudaSuccess;
  }

 private:
  struct Half {
    cudaEvent_t done = nullptr;
  };
  char* memory_ = nullptr;
  Half halves_[2];
  int now_ = 0;
  int64_t used_ = 0;
};

class CudaDevice final : public Device {
 public:
  ~CudaDevice() override {
    if (!stream_) return;
    cudaStreamSynchronize(stream_);
    for (cudaEvent_t e : {begin_, end_})
      if (e) cudaEventDestroy(e);
    cudaStreamDestroy(stream_);
  }

  Status create() {
    int count = 0;
    if (cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0)
      return invalid("--device cuda: no card that this process can use ({})",
                     e == cudaSuccess ? "none is there" : cudaGetErrorString(e));
    cudaDeviceProp properties;
    LATHE_RETURN_IF_ERROR(status_of(cudaGetDeviceProperties(&properties, 0), "device properties"));
    if (properties.major != 9 || properties.minor != 0)
      return invalid("--device cuda: the card is a {} of compute capability {}.{}; this build's kernels are for 9.0",
                     properties.name, properties.major, properties.minor);
    name_ = properties.name;
    LATHE_RETURN_IF_ERROR(status_of(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    LATHE_RETURN_IF_ERROR(status_of(cudaEventCreate(&begin_), "an event"));
    LATHE_RETURN_IF_ERROR(status_of(cudaEventCreate(&end_), "an event"));
    return status_of(staging_.create(), "pinned memory");
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "cuda"; }
  Stream stream() const override { return {stream_}; }

  Result<void*> allocate(int64_t bytes) override {
    void* p = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(cudaMalloc(&p, std::max(bytes, int64_t{1})), "an allocation"));
    return p;
  }
  // Waits for what may still use it.
  void release(void* address, int64_t) override {
    cudaStreamSynchronize(stream_);
    cudaFree(address);
  }
  int64_t free_bytes() const override {
    size_t free = 0, all = 0;
    return cudaMemGetInfo(&free, &all) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }
  bool shares_host_memory() const override { return false; }

  void to_device(void* to, const void* from, int64_t bytes) override {
    note(staging_.upload(static_cast<char*>(to), static_cast<const char*>(from), bytes, stream_), "an upload");
  }
  Status to_host(void* to, const void* from, int64_t bytes) override {
    if (bytes) note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "a download");
    return synchronize();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes) note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy");
  }
  void zero(void* to, int64_t bytes) override {
    if (bytes) note(cudaMemsetAsync(to, 0, bytes, stream_), "zeroing");
  }

  // Host work waits for the queue; so what it reads from the host's copies is there.
  void enqueue(std::function<Status()> work) override {
    note(cudaStreamSynchronize(stream_), "the queue");
    if (Status s = work(); !s.is_ok() && error_.is_ok()) error_ = s;
  }
  Status synchronize() override {
    note(cudaStreamSynchronize(stream_), "the queue");
    return std::exchange(error_, Status::ok());
  }

  Result<double> time_us(const std::function<Status()>& work) override {
    LATHE_RETURN_IF_ERROR(synchronize());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a capture"));
    Status recorded = work();
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (recorded.is_ok()) recorded = std::exchange(error_, Status::ok());
    if (recorded.is_ok()) recorded = status_of(ended, "the end of a capture");
    if (recorded.is_ok()) recorded = status_of(cudaGraphInstantiate(&replay, graph, 0), "a graph");
    float ms = 0;
    if (recorded.is_ok()) {
      note(cudaGraphLaunch(replay, stream_), "a replay");
      note(cudaEventRecord(begin_, stream_), "an event");
      note(cudaGraphLaunch(replay, stream_), "a replay");
      note(cudaEventRecord(end_, stream_), "an event");
      recorded = synchronize();
      if (recorded.is_ok()) recorded = status_of(cudaEventElapsedTime(&ms, begin_, end_), "a time");
    }
    if (replay) cudaGraphExecDestroy(replay);
    if (graph) cudaGraphDestroy(graph);
    LATHE_RETURN_IF_ERROR(recorded);
    return 1e3 * ms;
  }

 private:
  void note(cudaError_t error, const char* what) {
    if (error != cudaSuccess && error_.is_ok()) error_ = status_of(error, what);
  }

  std::string name_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Staging staging_;
  Status error_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device() {
  auto device = std::make_unique<CudaDevice>();
  LATHE_RETURN_IF_ERROR(device->create());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace lathe
